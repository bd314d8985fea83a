"""Addition that stops at the ends of the range, and the clamp that it is made of."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Value, ValueLike
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.shapes import constant, extremes, resized
from hdl.parameters import require_choice, require_range


def saturate(value: ValueLike, shape: Shape) -> tuple[Value, Value]:
    """Return a value clamped to a shape, and a bit that says whether the clamp changed it.

    There is no comparator: a value fits if the bits that are dropped all equal its sign, and so
    does the sign bit that is kept.
    """
    value = Value.cast(value)
    if not value.shape().signed:
        # With a sign bit on top one rule serves both signednesses.
        value = Cat(value, Const(0, 1)).as_signed()
    low, high = extremes(shape)
    kept = resized(value, shape.width)
    # The dropped bits, and the kept sign: all alike where the value fits.
    above = value[shape.width - shape.signed :]
    clamped = above.any() & ~(above.all() & shape.signed)
    limit = Mux(value[-1], constant(low, shape.width), constant(high, shape.width))
    result = Mux(clamped, limit, kept)
    return (result.as_signed() if shape.signed else result), clamped


class SaturatingAdd(Operator):
    """Sum of two integers of one shape, clamped to that shape.

    **Latency** `stages` cycles. **Throughput** one sum a cycle. **Numerics** exact within the
    range, otherwise the nearer end of it.

    Parameters
    ----------
    width : int
        Bits of operands and result, 1 to 64.
    signed_operands : bool
        Two's complement if true.
    stages : int
        Pipeline stages; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a, b : In
        The operands.
    result : Out
        The clamped sum.
    saturated : Out(1)
        Whether the exact sum is another number.

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
        self.shape = Shape(width, signed_operands)
        members = {
            "a": In(self.shape),
            "b": In(self.shape),
            "result": Out(self.shape),
            "saturated": Out(1),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Add with one more bit, cut, clamp, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        # Amaranth's sum is a bit wider than its operands: it cannot overflow.
        (total,) = pipeline.cut(self.a + self.b)
        result, saturated = pipeline.cut(*saturate(total, self.shape))
        m.d.comb += [self.result.eq(result), self.saturated.eq(saturated)]
        return m
