"""Dimensions of the element-serial softmax, which all of its parts share."""

from typing import Annotated

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object

SUM_FRACTION = 24
"""Fraction bits of a sum of exponentials: every FP16 exponential is a multiple of 2**-24."""

DIVISOR_BITS = 16
"""Leading bits of a sum that its reciprocal is taken of."""

RECIPROCAL_FRACTION = 14
"""Digits of a reciprocal after its first, which is 1 if the sum is a power of two."""


@parameter_object
class ElementSerialSoftmaxParameters(Parameters):
    """Dimensions of an element-serial softmax; they also drive its golden model and testbench.

    Parameters
    ----------
    capacity : int
        Scores of a head at most; the reciprocal of a larger sum would be subnormal.
    tile : int
        Scores after which the running maximum takes effect.
    heads : int
        Heads of raw scores that the score buffer holds.
    subtract_stages, exp_stages, multiply_stages : int
        Pipeline stages of the subtractors, of the exponential units, and of the multiplier.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    capacity: Annotated[int, Range(2, 16384, "scores")] = 4096
    tile: Annotated[int, PowerOfTwo(2, 64, "scores")] = 32
    heads: Annotated[int, Range(1, 64, "heads")] = 4
    subtract_stages: Annotated[int, Range(1, 4, "stages")] = 2
    exp_stages: Annotated[int, Range(1, 7, "stages")] = 5
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def stages(self) -> int:
        """Pipeline stages from a score to its exponential, that of the operands included."""
        return 1 + self.subtract_stages + self.exp_stages

    @property
    def sum_width(self) -> int:
        """Bits of a sum of exponentials, each at most 1."""
        # The maximum's exponential is 1, and there are `capacity` of them at most.
        return self.binades + 1 + SUM_FRACTION

    @property
    def binades(self) -> int:
        """Powers of two between the smallest sum, which is 1, and the largest."""
        return ceil_log2(self.capacity)

    @property
    def element_layout(self) -> data.StructLayout:
        """A score or a probability, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def length_shape(self) -> range:
        """Shape of a number of scores."""
        return range(self.capacity + 1)

    def lanes_layout(self, lanes: int) -> data.ArrayLayout:
        """Scores of heads in lock-step, FP16."""
        return data.ArrayLayout(BINARY16.layout, lanes)

    def beat_layout(self, lanes: int) -> data.StructLayout:
        """Probabilities of heads in lock-step, FP16."""
        return data.StructLayout({"values": self.lanes_layout(lanes), "last": 1})

    @property
    def maximum_layout(self) -> data.StructLayout:
        """What the normalisation subtracts, and whether the head has no softmax."""
        return data.StructLayout({"value": BINARY16.layout, "undefined": 1})

    @property
    def reciprocal_layout(self) -> data.StructLayout:
        """``1 / sum`` as an FP16 number with a longer mantissa, without its sign."""
        return data.StructLayout({"mantissa": RECIPROCAL_FRACTION - 1, "exponent": 5})

    @property
    def flags_layout(self) -> data.StructLayout:
        """Why a head had no softmax: a NaN among its scores, or no finite maximum."""
        return data.StructLayout({"nan": 1, "infinite": 1})
