"""Fixed-point formats Qm.n, shared by hardware, golden models and testbenches."""

from fractions import Fraction
from math import floor

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.arith.shapes import extremes
from hdl.fixed_shape import FixedShape
from hdl.parameters import parameter_object, require, require_choice, require_range


@parameter_object
class FixedPoint:
    """The format Qm.n: an integer of ``m + n`` bits in units of ``2**-n``.

    Parameters
    ----------
    integer_bits : int
        m, the bits above the binary point including the sign bit: Q6.10 is a 16-bit number.
    fraction_bits : int
        n, the bits below the binary point.
    signed : bool
        Two's complement if true, unsigned otherwise.

    Raises
    ------
    ValueError
        If a parameter is negative or the width is not 1 to 64.
    """

    integer_bits: int
    fraction_bits: int
    signed: bool = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_range("integer_bits", self.integer_bits, 0, 64)
        require_range("fraction_bits", self.fraction_bits, 0, 64)
        require_choice("signed", self.signed, (False, True))
        require_range("integer_bits + fraction_bits", self.width, 1, 64)

    @property
    def width(self) -> int:
        """Bits of a number."""
        return self.integer_bits + self.fraction_bits

    @property
    def shape(self) -> FixedShape:
        """The shape of a number in hardware; methods call its integer value `raw`."""
        return FixedShape(self.width, self.signed, self.fraction_bits)

    @property
    def resolution(self) -> Fraction:
        """The difference of adjacent numbers."""
        return Fraction(1, 1 << self.fraction_bits)

    @property
    def minimum(self) -> Fraction:
        """The smallest number."""
        return extremes(self.shape)[0] * self.resolution

    @property
    def maximum(self) -> Fraction:
        """The largest number."""
        return extremes(self.shape)[1] * self.resolution

    def to_fraction(self, raw: int) -> Fraction:
        """Return the exact value of a raw integer.

        Raises
        ------
        ValueError
            If the integer is outside the range.
        """
        low, high = extremes(self.shape)
        require(low <= raw <= high, f"a raw value of {self} must be from {low} to {high}", raw)
        return raw * self.resolution

    def from_fraction(
        self, value: Fraction | int | float, rounding: Rounding = Rounding.HALF_EVEN
    ) -> int:
        """Return the raw integer of a value, rounded and then clamped to the range."""
        steps = Fraction(value) / self.resolution
        match rounding:
            case Rounding.HALF_EVEN:
                raw = round(steps)
            case Rounding.HALF_UP:
                raw = floor(steps + Fraction(1, 2))
            case Rounding.FLOOR:
                raw = floor(steps)
        low, high = extremes(self.shape)
        return min(max(raw, low), high)

    def to_bits(self, raw: int) -> int:
        """Return a raw integer's bits as an unsigned number."""
        self.to_fraction(raw)
        return raw % (1 << self.width)

    def from_bits(self, bits: int) -> int:
        """Return the raw integer of an unsigned number's bits.

        Raises
        ------
        ValueError
            If the bits are wider than the format.
        """
        require(0 <= bits < 1 << self.width, f"bits must fit in {self.width} bits", bits)
        negative = self.signed and bits >> (self.width - 1)
        return bits - (1 << self.width) if negative else bits

    def show(self, raw: int) -> str:
        """Return a raw integer with its value, such as ``0x0C00 (3.0 in Q6.10)``."""
        digits = (self.width + 3) // 4
        return f"0x{self.to_bits(raw):0{digits}X} ({float(self.to_fraction(raw))!r} in {self})"

    def __str__(self) -> str:
        """Return the usual name: Q6.10 if signed, UQ6.10 if not."""
        return f"{'' if self.signed else 'U'}Q{self.integer_bits}.{self.fraction_bits}"


class FixedPointConvert(Operator):
    """Conversion to another fixed-point format: round, then clamp.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** round by the
    given rule, then clamp to the range of the target.

    Parameters
    ----------
    source, target : FixedPoint
        Format of the operand and of the result.
    rounding : Rounding
        Rounding rule for bits below the target's resolution.
    stages : int
        Pipeline stages: the last one registers the result, a second separates rounding and clamp.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(source.shape)
        The number.
    result : Out(target.shape)
        The number in the target format.
    saturated : Out(1)
        1 if the clamp changed the number.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        source: FixedPoint,
        target: FixedPoint,
        rounding: Rounding = Rounding.HALF_EVEN,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_choice("rounding", rounding, tuple(Rounding))
        self.source = source
        self.target = target
        self.rounding = rounding
        members = {"a": In(source.shape), "result": Out(target.shape), "saturated": Out(1)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Align the binary points, cut, clamp, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        shift = self.source.fraction_bits - self.target.fraction_bits
        aligned: Value = rounded_right(self.a, max(shift, 0), self.rounding)
        if shift < 0:
            wide = Cat(Const(0, -shift), aligned)
            aligned = wide.as_signed() if self.source.signed else wide
        (aligned,) = pipeline.cut(aligned)
        result, saturated = pipeline.cut(*saturate(aligned, self.target.shape))
        m.d.comb += [self.result.eq(result), self.saturated.eq(saturated)]
        return m
