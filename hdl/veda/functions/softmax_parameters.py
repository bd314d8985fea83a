"""Dimensions of the element-serial softmax, shared by all of its parts."""

from typing import Annotated

from amaranth.hdl import Shape, signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_exp2 import WHOLE_BITS
from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object

SUM_FRACTION = 24
"""Fraction bits of a sum of exponentials, of which the largest is from 1 to 2."""

DISTANCE_BITS = 5
"""Bits of a distance of powers of two."""

FAR = (1 << DISTANCE_BITS) - 1
"""A distance of at least this many powers of two: the smaller exponential contributes nothing."""

DIVISOR_BITS = 16
"""Leading bits of a sum that are used for its reciprocal."""

RECIPROCAL_FRACTION = 14
"""Digits of a reciprocal after its first, which is 1 if the sum is a power of two."""

RECIPROCAL_EXPONENT = 2
"""Exponent code of every reciprocal; the rest of its power of two is in its head's scale."""

ONE = 2 * BINARY16.bias - RECIPROCAL_EXPONENT
"""The exponent code of an exponential whose product with a reciprocal is from 1 to 2."""


@parameter_object
class ElementSerialSoftmaxParameters(Parameters):
    """Dimensions of an element-serial softmax, its golden model and its testbench.

    Parameters
    ----------
    scores : int
        Maximum number of scores of a head.
    heads : int
        Heads of exponentials that the buffer holds.
    exp_stages, multiply_stages : int
        Pipeline stages of the exponential unit and of the multiplier.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    scores: Annotated[int, Range(2, 16384, "scores")] = 4096
    heads: Annotated[int, Range(1, 64, "heads")] = 4
    exp_stages: Annotated[int, Range(1, 3, "stages")] = 3
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def sum_width(self) -> int:
        """Bits of a sum of exponentials, each below 2."""
        # The maximum's exponential is below 2, and there are at most `scores` exponentials.
        return self.binades + 1 + SUM_FRACTION

    @property
    def binades(self) -> int:
        """Powers of two between the smallest sum, which is 1, and the largest."""
        return ceil_log2(self.scores)

    @property
    def division_cycles(self) -> int:
        """Cycles from a complete sum to its reciprocal, in which no other sum may be complete."""
        return self.binades + RECIPROCAL_FRACTION + 1

    @property
    def element_layout(self) -> data.StructLayout:
        """A score or a probability, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def exponential_layout(self) -> data.StructLayout:
        """An exponential: its mantissa, and its distance from the largest power of two so far.

        If it `rises` above that, the distance is the amount of the rise; `FAR` means that distance
        or more.
        """
        return data.StructLayout(
            {"mantissa": BINARY16.mantissa_bits, "distance": DISTANCE_BITS, "rises": 1}
        )

    @property
    def length_shape(self) -> range:
        """Shape of a number of scores."""
        return range(self.scores + 1)

    def lanes_layout(self, lanes: int) -> data.ArrayLayout:
        """Scores of heads in lock-step, FP16."""
        return data.ArrayLayout(BINARY16.layout, lanes)

    def beat_layout(self, lanes: int) -> data.StructLayout:
        """Probabilities of heads in lock-step, FP16."""
        return data.StructLayout({"values": self.lanes_layout(lanes), "last": 1})

    @property
    def scale_shape(self) -> Shape:
        """Shape of an exponent code from which all powers of two of a head have been subtracted."""
        # They rise by at most the range from the smallest FP16 number to the largest, or by `FAR`
        # each.
        return signed(min(WHOLE_BITS, (FAR * self.scores).bit_length()) + 1)

    @property
    def reciprocal_layout(self) -> data.StructLayout:
        """The scale factor of a head's exponentials.

        `mantissa`: of the reciprocal of their sum, with `RECIPROCAL_FRACTION` digits. `scale`:
        exponent code of the product of the head's first exponential, before it rises. `undefined`:
        the head has no softmax.
        """
        return data.StructLayout(
            {"mantissa": RECIPROCAL_FRACTION - 1, "scale": self.scale_shape, "undefined": 1}
        )

    @property
    def flags_layout(self) -> data.StructLayout:
        """Reason why a head had no softmax: a NaN among its scores, or no finite maximum."""
        return data.StructLayout({"nan": 1, "infinite": 1})
