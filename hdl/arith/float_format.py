"""Binary floating-point formats, shared by hardware, golden models and testbenches."""

from enum import Enum
from fractions import Fraction
from functools import cached_property
from numbers import Rational

import numpy as np
from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.parameters import parameter_object, require, require_choice, require_range


class Specials(Enum):
    """Interpretation of the codes with the largest exponent.

    Members
    -------
    IEEE : str
        Mantissa 0 is an infinity, any other mantissa is a NaN.
    NAN_ONLY : str
        All ones (exponent and mantissa) is a NaN; the other codes are numbers: the OCP "fn"
        formats.
    NONE : str
        Every code is a number.
    """

    IEEE = "ieee"
    NAN_ONLY = "nan_only"
    NONE = "none"


@parameter_object
class FloatFormat:
    """A binary floating-point format with subnormal numbers.

    The fields from the most significant bit are one sign bit (if signed), the exponent code, and
    the mantissa (the fraction without the hidden bit). Exponent code 0 encodes zero and the
    subnormals, ``mantissa * 2**(1 - bias - mantissa_bits)``. Any other code ``e`` encodes
    ``(2**mantissa_bits + mantissa) * 2**(e - bias - mantissa_bits)``.

    Parameters
    ----------
    exponent_bits : int
        Bits of the exponent code, 2 to 11.
    mantissa_bits : int
        Bits of the mantissa, 1 to 52.
    bias : int
        Exponent code of numbers in [1, 2).
    signed : bool
        The format has a sign bit.
    specials : Specials
        Interpretation of the largest exponent code.

    Raises
    ------
    ValueError
        If a parameter is outside its range or a value is not exact in float64.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: bool = True
    specials: Specials = Specials.IEEE

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_range("exponent_bits", self.exponent_bits, 2, 11)
        require_range("mantissa_bits", self.mantissa_bits, 1, 52)
        require_range("bias", self.bias, 0, min(2**self.exponent_bits - 1, 1023))
        require_choice("signed", self.signed, (False, True))
        require_choice("specials", self.specials, tuple(Specials))
        require(
            self.largest_exponent - self.bias <= 1023 and self.smallest_power >= -1074,
            "every value of a format must be exact in float64",
            self,
        )

    @property
    def width(self) -> int:
        """Bits of a code."""
        return int(self.signed) + self.exponent_bits + self.mantissa_bits

    @property
    def significand_bits(self) -> int:
        """Bits of the significand, including the hidden bit."""
        return self.mantissa_bits + 1

    @property
    def layout(self) -> data.StructLayout:
        """The fields of a code: ``mantissa``, ``exponent`` and, if signed, ``sign``."""
        fields = {
            "mantissa": unsigned(self.mantissa_bits),
            "exponent": unsigned(self.exponent_bits),
        }
        return data.StructLayout(fields | ({"sign": unsigned(1)} if self.signed else {}))

    @property
    def exponent_mask(self) -> int:
        """The largest exponent code."""
        return (1 << self.exponent_bits) - 1

    @property
    def mantissa_mask(self) -> int:
        """The largest mantissa."""
        return (1 << self.mantissa_bits) - 1

    @property
    def sign_mask(self) -> int:
        """A code with only the sign bit set; 0 for an unsigned format."""
        return int(self.signed) << (self.exponent_bits + self.mantissa_bits)

    @property
    def magnitude_mask(self) -> int:
        """A code with all bits but the sign set."""
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def largest_exponent(self) -> int:
        """The largest exponent code of a finite number."""
        return self.exponent_mask - (self.specials is Specials.IEEE)

    @property
    def smallest_power(self) -> int:
        """The base-two logarithm of the smallest subnormal: every value is a multiple of it."""
        return 1 - self.bias - self.mantissa_bits

    @property
    def one(self) -> int:
        """The code of 1.0."""
        return self.bias << self.mantissa_bits

    @property
    def min_subnormal(self) -> int:
        """The code of the smallest number above zero."""
        return 1

    @property
    def min_normal(self) -> int:
        """The code of the smallest normal number."""
        return 1 << self.mantissa_bits

    @property
    def max_finite(self) -> int:
        """The code of the largest finite number."""
        match self.specials:
            case Specials.IEEE:
                return (self.exponent_mask << self.mantissa_bits) - 1
            case Specials.NAN_ONLY:
                return self.magnitude_mask - 1
            case _:
                return self.magnitude_mask

    @property
    def infinity(self) -> int | None:
        """The code of positive infinity; None if the format has none."""
        ieee = self.specials is Specials.IEEE
        return self.exponent_mask << self.mantissa_bits if ieee else None

    @property
    def quiet_nan(self) -> int | None:
        """The code of the NaN that operators return; None if the format has none."""
        match self.specials:
            case Specials.IEEE:
                quiet = 1 << (self.mantissa_bits - 1)
                return (self.exponent_mask << self.mantissa_bits) | quiet
            case Specials.NAN_ONLY:
                return self.magnitude_mask
            case _:
                return None

    def is_nan(self, bits: int) -> bool:
        """Whether a code is a NaN."""
        magnitude = self._checked(bits) & self.magnitude_mask
        match self.specials:
            case Specials.IEEE:
                return magnitude > self.exponent_mask << self.mantissa_bits
            case Specials.NAN_ONLY:
                return magnitude == self.magnitude_mask
            case _:
                return False

    def is_infinite(self, bits: int) -> bool:
        """Whether a code is an infinity."""
        return self._checked(bits) & self.magnitude_mask == self.infinity

    def to_fraction(self, bits: int) -> Fraction:
        """Return the exact value of a finite code; both zeros give 0.

        Raises
        ------
        ValueError
            If the code is too wide, or is an infinity or a NaN.
        """
        finite = not (self.is_nan(bits) or self.is_infinite(bits))
        require(finite, "only a finite code has an exact value", hex(bits))
        exponent = (bits >> self.mantissa_bits) & self.exponent_mask
        significand = (bits & self.mantissa_mask) | ((exponent > 0) << self.mantissa_bits)
        value = significand * Fraction(2) ** (max(exponent, 1) - 1 + self.smallest_power)
        return -value if bits & self.sign_mask else value

    def from_fraction(self, value: Fraction | int | float, *, saturate: bool = False) -> int:
        """Return the code nearest to a value, ties to the even code.

        Parameters
        ----------
        value : Fraction or int or float
            A finite value. A zero gives the positive zero unless it is the float ``-0.0``.
        saturate : bool
            Clamp a value that rounds beyond the largest finite number to that number. Without it,
            the result is infinity, or NaN if the format has no infinity. A format without special
            values always saturates.

        Raises
        ------
        ValueError
            If the value is not finite, or negative and the format unsigned.
        """
        # A fraction may exceed the largest float.
        finite = isinstance(value, Rational) or np.isfinite(value)
        require(finite, "only a finite value has a nearest code", value)
        exact = abs(Fraction(value))
        negative = bool(np.signbit(float(value))) if exact == 0 else value < 0
        require(
            self.signed or not negative or exact == 0, "an unsigned code needs value >= 0", value
        )
        exponent = 1
        while exact >= Fraction(2) ** (exponent + self.mantissa_bits + self.smallest_power):
            exponent += 1
        steps = round(exact / Fraction(2) ** (exponent - 1 + self.smallest_power))
        # A significand that rounds up to the next power of two carries into the exponent.
        magnitude = ((exponent - 1) << self.mantissa_bits) + steps
        if magnitude > self.max_finite:
            overflow = self.infinity if self.infinity is not None else self.quiet_nan
            magnitude = self.max_finite if saturate or overflow is None else overflow
        return magnitude | (self.sign_mask if negative else 0)

    def decode(self, bits: np.ndarray) -> np.ndarray:
        """Return the values of an array of codes, exact in float64.

        Parameters
        ----------
        bits : numpy.ndarray
            Codes of any integer type and shape; bits above `width` are ignored.

        Returns
        -------
        numpy.ndarray
            float64 of the same shape, with infinities, NaNs and signed zeros.
        """
        codes = np.asarray(bits)
        if self.width <= 16:
            return self._values[codes.astype(np.int64) & (len(self._values) - 1)]
        if self.native is not None:
            # numpy warns about signalling NaNs, which are valid codes here.
            with np.errstate(invalid="ignore"):
                return codes.astype(np.uint32).view(self.native).astype(np.float64)
        return self._decoded(codes.astype(np.uint64))

    @cached_property
    def native(self) -> type[np.float16 | np.float32] | None:
        """The numpy type with this encoding; None if there is none."""
        for number_format, native in ((BINARY16, np.float16), (BINARY32, np.float32)):
            if self == number_format:
                return native
        return None

    @cached_property
    def _values(self) -> np.ndarray:
        """The values of all codes, indexed by code."""
        return self._decoded(np.arange(1 << self.width, dtype=np.uint64))

    def _decoded(self, codes: np.ndarray) -> np.ndarray:
        """Return the values of codes, computed from their fields."""
        exponent = ((codes >> self.mantissa_bits) & self.exponent_mask).astype(np.int64)
        mantissa = (codes & self.mantissa_mask).astype(np.int64)
        significand = mantissa | ((exponent > 0).astype(np.int64) << self.mantissa_bits)
        power = np.clip(exponent, 1, self.largest_exponent) - 1 + self.smallest_power
        value = np.ldexp(significand.astype(np.float64), power.astype(np.int32))
        magnitude = codes & self.magnitude_mask
        if self.specials is Specials.IEEE:
            value = np.where(exponent == self.exponent_mask, np.inf, value)
            value = np.where(magnitude > self.exponent_mask << self.mantissa_bits, np.nan, value)
        elif self.specials is Specials.NAN_ONLY:
            value = np.where(magnitude == self.magnitude_mask, np.nan, value)
        return np.where(codes & self.sign_mask != 0, -value, value)

    def show(self, bits: int) -> str:
        """Return a code with its value, such as ``0x3C00 (1.0)``."""
        digits = (self.width + 3) // 4
        return f"0x{self._checked(bits):0{digits}X} ({float(self.decode(np.array(bits)))!r})"

    def _checked(self, bits: int) -> int:
        """Return the code; raise if it does not fit the width."""
        require(0 <= bits < 1 << self.width, f"a code must fit in {self.width} bits", bits)
        return bits


BINARY16 = FloatFormat(exponent_bits=5, mantissa_bits=10, bias=15)
"""IEEE 754 binary16 (FP16)."""

BINARY32 = FloatFormat(exponent_bits=8, mantissa_bits=23, bias=127)
"""IEEE 754 binary32 (FP32)."""

FP29 = FloatFormat(exponent_bits=7, mantissa_bits=21, bias=63)
"""The narrowest format in which every product of two FP16 numbers is exact and normal."""

FP8_E4M3FN = FloatFormat(exponent_bits=4, mantissa_bits=3, bias=7, specials=Specials.NAN_ONLY)
"""OCP FP8 E4M3: largest number 448, no infinity, NaN 0x7F and 0xFF."""

FP8_S0E4M4 = FloatFormat(
    exponent_bits=4, mantissa_bits=4, bias=15, signed=False, specials=Specials.NONE
)
"""Unsigned FP8 for attention probabilities: bits 13 to 6 of a binary16 in [0, 2)."""

NAMED_FORMATS = {"binary16": BINARY16, "binary32": BINARY32}
"""The formats that parameters select by name."""
