"""A balanced tree of integer adders that never loses a bit."""

from collections.abc import Sequence

from amaranth.hdl import Module, Shape, Value, ValueLike, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.parameters import require_choice, require_range


def pairs(values: Sequence[ValueLike]) -> list[Value]:
    """Add adjacent pairs; the last of an odd number goes on as it is."""
    level = [Value.cast(value) for value in values]
    sums = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
    return sums + level[len(level) & ~1 :]


def tree_sum(values: Sequence[ValueLike]) -> Value:
    """Return the exact sum of values of any shapes as a balanced tree.

    Unlike Python's `sum`, the depth is logarithmic and the result grows by one bit a level.
    """
    level = list(values)
    while len(level) > 1:
        level = pairs(level)
    return Value.cast(level[0])


class AdderTree(Operator):
    """Exact sum of `count` integers of one shape.

    **Latency** `stages` cycles. **Throughput** one sum a cycle. **Numerics** exact: the result has
    just the bits that the extreme sums need, so it cannot overflow. Integer addition is
    associative, hence the order (adjacent pairs) shows in timing only.

    Parameters
    ----------
    count : int
        Number of operands, 1 to 4096.
    width : int
        Bits of an operand, 1 to 64.
    signed_operands : bool
        Two's complement if true.
    stages : int
        Pipeline stages, spread over the levels of the tree; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a : In(ArrayLayout)
        The operands, element 0 in the lowest bits.
    result : Out
        Their sum.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        count: int,
        width: int,
        signed_operands: bool = True,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_range("count", count, 1, 4096)
        require_range("width", width, 1, 64)
        require_choice("signed_operands", signed_operands, (False, True))
        self.count = count
        operand = Shape(width, signed_operands)
        members = {
            "a": In(data.ArrayLayout(operand, count)),
            "result": Out(sum_shape(operand, count)),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Build the tree level by level, with a cut after each level."""
        m = Module()
        levels = (self.count - 1).bit_length()
        pipeline = self.pipeline(m, cuts=levels + 1)
        level = [self.a[index] for index in range(self.count)]
        for _ in range(levels):
            # A cut before each level: an early stage registers the operands themselves.
            level = pairs(pipeline.cut(*level))
        (result,) = pipeline.cut(*level)
        m.d.comb += self.result.eq(result)
        return m


def sum_shape(operand: Shape, count: int) -> Shape:
    """Return the narrowest shape that holds every sum of `count` operands.

    Signed operands sum to at least ``-count * 2**(width - 1)``, which decides the width because the
    largest sum is smaller in magnitude; unsigned ones to at most ``count * (2**width - 1)``.
    """
    # The most negative sum has the largest magnitude, and needs one bit less than its mirror.
    if operand.signed:
        return signed((count * 2 ** (operand.width - 1) - 1).bit_length() + 1)
    return unsigned((count * (2**operand.width - 1)).bit_length())
