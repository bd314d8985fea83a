"""Dimensions of the element-serial softmax, which all of its parts share."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.parameters import parameter_object, require_power_of_two, require_range

SUM_FRACTION = 24
"""Fraction bits of a sum of exponentials: every FP16 exponential is a multiple of 2**-24."""

DIVISOR_BITS = 16
"""Leading bits of a sum that its reciprocal is taken of."""

RECIPROCAL_FRACTION = 14
"""Digits of a reciprocal after its first, which is 1 if the sum is a power of two."""


@parameter_object
class ElementSerialSoftmaxParameters:
    """Dimensions of an element-serial softmax; they also drive its golden model and testbench.

    Parameters
    ----------
    capacity : int
        Scores of a head at most, 2 to 16384: the reciprocal of a larger sum would be subnormal.
    tile : int
        Scores after which the running maximum takes effect: a power of two, 2 to 64.
    heads : int
        Heads of raw scores that the score buffer holds, 1 to 64.
    subtract_stages, exp_stages, multiply_stages : int
        Pipeline stages of the subtractors, 1 to 4, of the exponential units, 1 to 7, and of the
        multiplier, 1 to 4.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    capacity: int = 4096
    tile: int = 32
    heads: int = 4
    subtract_stages: int = 2
    exp_stages: int = 5
    multiply_stages: int = 2

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("capacity", self.capacity, 2, 1 << 14)
        require_power_of_two("tile", self.tile, 2, 64)
        require_range("heads", self.heads, 1, 64)
        require_range("subtract_stages", self.subtract_stages, 1, 4)
        require_range("exp_stages", self.exp_stages, 1, 7)
        require_range("multiply_stages", self.multiply_stages, 1, 4)

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
