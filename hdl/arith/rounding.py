"""Right shifts with rounding: half to even, half up, or down."""

from enum import Enum

from amaranth.hdl import Const, Module, Mux, Shape, Value, ValueLike
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.shapes import resized
from hdl.parameters import require_choice, require_range


class Rounding(Enum):
    """Rule that rounds a value to an integer.

    Members
    -------
    HALF_EVEN : str
        To nearest; ties to even.
    HALF_UP : str
        To nearest; ties towards positive infinity.
    FLOOR : str
        Towards negative infinity: truncation, for two's complement and unsigned values.
    """

    HALF_EVEN = "half_even"
    HALF_UP = "half_up"
    FLOOR = "floor"


def round_up(rounding: Rounding, odd: Value, half: Value, sticky: Value) -> Value:
    """Return whether to increment the floor.

    Parameters
    ----------
    rounding : Rounding
        The rounding rule.
    odd : Value
        Lowest kept bit.
    half : Value
        Highest dropped bit.
    sticky : Value
        Whether any lower dropped bit is 1.
    """
    match rounding:
        case Rounding.HALF_EVEN:
            return half & (sticky | odd)
        case Rounding.HALF_UP:
            return half
        case _:
            return Const(0, 1)


def rounded_right(value: ValueLike, shift: int, rounding: Rounding) -> Value:
    """Return ``value / 2**shift`` rounded to an integer.

    The result has ``shift`` fewer bits, plus one for the carry unless the rule is floor.
    """
    value = Value.cast(value)
    signed = value.shape().signed
    if shift == 0:
        return value
    width = max(len(value) - shift, 1)
    # Extend a value shorter than the shift, so that half and sticky bits exist.
    wide = resized(value, max(len(value), shift + 1))
    kept = wide[shift:]
    floor = kept.as_signed() if signed else kept
    if rounding is Rounding.FLOOR:
        return floor
    # Of the dropped bits, the top one is the half; the others only break ties.
    up = round_up(rounding, kept[0], wide[shift - 1], wide[: shift - 1].any())
    raised = (floor + up)[: width + 1]
    return raised.as_signed() if signed else raised


class RoundingShift(Operator):
    """An integer divided by a constant power of two, with rounding.

    **Latency** `stages` cycles. **Throughput** one value per cycle. **Numerics** as the `Rounding`
    rule; the result cannot overflow.

    Parameters
    ----------
    width : int
        Bits of the operand, 1 to 128.
    shift : int
        Exponent of the power of two, 0 to `width`.
    rounding : Rounding
        The rounding rule.
    signed_operand : bool
        Interpret the operand as two's complement.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In
        The operand.
    result : Out
        The quotient: ``width - shift`` bits, at least 1, plus one unless the rule is floor or the
        shift is 0.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        width: int,
        shift: int,
        rounding: Rounding = Rounding.HALF_EVEN,
        signed_operand: bool = True,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_range("width", width, 1, 128)
        require_range("shift", shift, 0, width)
        require_choice("rounding", rounding, tuple(Rounding))
        require_choice("signed_operand", signed_operand, (False, True))
        self.shift = shift
        self.rounding = rounding
        growth = int(shift > 0 and rounding is not Rounding.FLOOR)
        members = {
            "a": In(Shape(width, signed_operand)),
            "result": Out(Shape(max(width - shift, 1) + growth, signed_operand)),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Shift and round; cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        (result,) = pipeline.cut(rounded_right(self.a, self.shift, self.rounding))
        m.d.comb += self.result.eq(result)
        return m


class VariableRoundingShift(Operator):
    """An integer divided by a variable power of two, with rounding.

    **Latency** `stages` cycles. **Throughput** one value per cycle. **Numerics** as the `Rounding`
    rule; the result has the operand's shape and cannot overflow.

    Parameters
    ----------
    width : int
        Bits of operand and result, 1 to 128.
    largest_shift : int
        Largest exponent of the power of two, 1 to 128. A larger `shift` is outside the contract.
    rounding : Rounding
        The rounding rule.
    signed_operand : bool
        Interpret the operand as two's complement.
    stages : int
        Pipeline stages: the last one registers the result, a second separates shift and rounding.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In
        The operand.
    shift : In(range(largest_shift + 1))
        Exponent of the power of two.
    result : Out
        The quotient.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        width: int,
        largest_shift: int,
        rounding: Rounding = Rounding.HALF_EVEN,
        signed_operand: bool = True,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_range("width", width, 1, 128)
        require_range("largest_shift", largest_shift, 1, 128)
        require_choice("rounding", rounding, tuple(Rounding))
        require_choice("signed_operand", signed_operand, (False, True))
        self.largest_shift = largest_shift
        self.rounding = rounding
        operand = Shape(width, signed_operand)
        members = {"a": In(operand), "shift": In(range(largest_shift + 1)), "result": Out(operand)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Shift, cut, increment the floor, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        kept, half, sticky = self._shifted()
        # The carry of the increment has a pipeline stage to itself.
        kept, half, sticky = pipeline.cut(kept, half, sticky)
        up = round_up(self.rounding, kept[0], half, sticky)
        (result,) = pipeline.cut((kept + up)[: len(self.result)])
        m.d.comb += self.result.eq(result)
        return m

    def _shifted(self) -> tuple[Value, Value, Value]:
        """Shift by powers of two; the last dropped bit is the half, all earlier ones are sticky."""
        kept: Value = self.a
        half: Value = Const(0, 1)
        sticky: Value = Const(0, 1)
        # The longest step is first, so the bits of earlier steps are below the half of later ones.
        for bit in reversed(range(len(self.shift))):
            step, taken = 1 << bit, self.shift[bit]
            dropped = resized(kept, max(step, len(kept)))[:step]
            sticky = Mux(taken, sticky | half | dropped[:-1].any(), sticky)
            half = Mux(taken, dropped[-1], half)
            kept = Mux(taken, kept >> step, kept)
        return kept, half, sticky
