"""4:2 compressor: reduce four integers to two with the same sum, without a carry chain."""

from amaranth.hdl import Module, Shape, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.shapes import resized
from hdl.parameters import require_choice, require_range


def full_adders(a: Value, b: Value, c: Value, width: int) -> tuple[Value, Value]:
    """Reduce three values to two of `width` bits with the same sum modulo ``2**width``.

    Signed values are sign-extended. The returned carry is already shifted left by one.
    """
    a, b, c = (resized(value, width) for value in (a, b, c))
    # The first half adder's sum is used twice: in the sum and as the select of the carry.
    half = a ^ b
    carry = (a & b) | (half & c)
    return half ^ c, (carry << 1)[:width]


class Compressor(Operator):
    """Sum of four integers in carry-save form.

    ``(sum + carry) mod 2**(width + 2)``, interpreted with the operands' signedness, equals ``a[0] +
    a[1] + a[2] + a[3]``. The two rows of full adders make the delay independent of the width.

    **Latency** `stages` cycles. **Throughput** one operand set per cycle. **Numerics** exact.

    Parameters
    ----------
    width : int
        Bits of an operand, 1 to 64.
    signed_operands : bool
        Interpret the operands as two's complement.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(ArrayLayout)
        The four operands.
    sum, carry : Out(width + 2)
        Two numbers that add up to the result.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, width: int, signed_operands: bool = True, stages: int = 0, enable: bool = False
    ) -> None:
        require_range("width", width, 1, 64)
        require_choice("signed_operands", signed_operands, (False, True))
        self.width = width
        members = {
            "a": In(data.ArrayLayout(Shape(width, signed_operands), 4)),
            "sum": Out(unsigned(width + 2)),
            "carry": Out(unsigned(width + 2)),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Build two rows of full adders, with a cut after each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        # Four operands need two more bits; both rows work modulo that width.
        width = self.width + 2
        row = full_adders(self.a[0], self.a[1], self.a[2], width)
        # The second row adds the fourth operand.
        first, second, last = pipeline.cut(*row, self.a[3])
        total, carry = pipeline.cut(*full_adders(first, second, last, width))
        m.d.comb += [self.sum.eq(total), self.carry.eq(carry)]
        return m
