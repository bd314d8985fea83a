"""Saturating addition and clamping."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Value, ValueLike
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.shapes import constant, extremes, resized
from hdl.parameters import require_choice, require_range


def saturate(value: ValueLike, shape: Shape) -> tuple[Value, Value]:
    """Return a value clamped to a shape, and whether the clamp changed it.

    No comparator is needed: a value fits if all dropped bits and the kept sign bit equal its sign.
    """
    value = Value.cast(value)
    if not value.shape().signed:
        # An added sign bit of 0 lets one rule serve signed and unsigned values.
        value = Cat(value, Const(0, 1)).as_signed()
    low, high = extremes(shape)
    kept = resized(value, shape.width)
    # The dropped bits and the kept sign are all equal if the value fits.
    above = value[shape.width - shape.signed :]
    clamped = above.any() & ~(above.all() & shape.signed)
    limit = Mux(value[-1], constant(low, shape.width), constant(high, shape.width))
    result = Mux(clamped, limit, kept)
    return (result.as_signed() if shape.signed else result), clamped


class SaturatingAdd(Operator):
    """Sum of two integers of one shape, clamped to that shape.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** exact within the
    range, the nearer limit otherwise.

    Parameters
    ----------
    width : int
        Bits of operands and result, 1 to 64.
    signed_operands : bool
        Interpret operands and result as two's complement.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In
        The operands.
    result : Out
        The clamped sum.
    saturated : Out(1)
        1 if the exact sum is out of range.

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
