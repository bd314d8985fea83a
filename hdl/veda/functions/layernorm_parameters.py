"""Dimensions of the element-serial layernorm, which all of its parts share."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.parameters import parameter_object, require_choice, require_range

SUM_FRACTION = 24
"""Fraction bits of a sum of elements: every FP16 number is a multiple of 2**-24."""

SQUARE_FRACTION = 28
"""Fraction bits of a square, and of the variance."""

EPSILON = round(1e-5 * 2**SQUARE_FRACTION)
"""1e-5 in units of 2**-28."""


@parameter_object
class ElementSerialLayernormParameters:
    """Dimensions of an element-serial layernorm; they also drive its model and its testbench.

    Parameters
    ----------
    capacity : int
        Elements of a vector at most, 2 to 65536.
    rms : bool
        Whether the mean is left alone: RMSNorm instead of layernorm.
    vectors : int
        Vectors that the buffer holds, 1 to 16.
    subtract_stages, multiply_stages : int
        Pipeline stages of the two operators behind the buffer, 1 to 4.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    capacity: int = 4096
    rms: bool = True
    vectors: int = 2
    subtract_stages: int = 2
    multiply_stages: int = 2

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("capacity", self.capacity, 2, 1 << 16)
        require_choice("rms", self.rms, (False, True))
        require_range("vectors", self.vectors, 1, 16)
        require_range("subtract_stages", self.subtract_stages, 1, 4)
        require_range("multiply_stages", self.multiply_stages, 1, 4)

    @property
    def count_width(self) -> int:
        """Bits of a number of elements."""
        return self.capacity.bit_length()

    @property
    def mean_width(self) -> int:
        """Bits of a mean's magnitude: as many as of the largest FP16 number."""
        return 16 + SUM_FRACTION + 1

    @property
    def sum_width(self) -> int:
        """Bits of a sum of elements, with its sign."""
        return self.mean_width + ceil_log2(self.capacity) + 1

    @property
    def square_sum_width(self) -> int:
        """Bits of a sum of squares."""
        return 32 + SQUARE_FRACTION + ceil_log2(self.capacity)

    @property
    def element_layout(self) -> data.StructLayout:
        """An element, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def sums_layout(self) -> data.StructLayout:
        """What the reduction knows of a complete vector."""
        return data.StructLayout(
            {"squares": self.square_sum_width, "count": self.count_width, "undefined": 1}
            | ({} if self.rms else {"sum": self.sum_width})
        )

    @property
    def scale_layout(self) -> data.StructLayout:
        """What the normalisation needs of a vector: ``1 / sigma``, and the mean."""
        return data.StructLayout(
            {"scale": BINARY16.layout} | ({} if self.rms else {"mean": BINARY16.layout})
        )
