"""Dimensions of the element-serial layernorm, shared by all of its parts."""

from typing import Annotated

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object

SUM_FRACTION = 24
"""Fraction bits of a sum of elements: every FP16 number is a multiple of 2**-24."""

SQUARE_FRACTION = 28
"""Fraction bits of a square, and of the variance."""

EPSILON = round(1e-5 * 2**SQUARE_FRACTION)
"""1e-5 in units of 2**-28."""


@parameter_object
class ElementSerialLayernormParameters(Parameters):
    """Dimensions of an element-serial layernorm, its golden model and its testbench.

    Parameters
    ----------
    width : int
        Maximum number of elements of a vector.
    rms : bool
        RMSNorm instead of layernorm: no mean is subtracted.
    vectors : int
        Vectors that the buffer holds.
    subtract_stages, multiply_stages : int
        Pipeline stages of the two operators downstream of the buffer.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    width: Annotated[int, Range(2, 65536, "elements")] = 4096
    rms: bool = True
    vectors: Annotated[int, Range(1, 16, "vectors")] = 2
    subtract_stages: Annotated[int, Range(1, 4, "stages")] = 2
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def count_width(self) -> int:
        """Bits of a number of elements."""
        return self.width.bit_length()

    @property
    def mean_width(self) -> int:
        """Bits of a mean's magnitude: as many as of the largest FP16 number in units of 2**-24."""
        return 16 + SUM_FRACTION + 1

    @property
    def sum_width(self) -> int:
        """Bits of a sum of elements, including its sign."""
        return self.mean_width + ceil_log2(self.width) + 1

    @property
    def square_sum_width(self) -> int:
        """Bits of a sum of squares."""
        return 32 + SQUARE_FRACTION + ceil_log2(self.width)

    @property
    def element_layout(self) -> data.StructLayout:
        """An element, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def sums_layout(self) -> data.StructLayout:
        """Result of the reduction of a complete vector."""
        return data.StructLayout(
            {"squares": self.square_sum_width, "count": self.count_width, "undefined": 1}
            | ({} if self.rms else {"sum": self.sum_width})
        )

    @property
    def scale_layout(self) -> data.StructLayout:
        """Constants of a vector's normalisation: ``1 / sigma``, and the mean."""
        return data.StructLayout(
            {"scale": BINARY16.layout} | ({} if self.rms else {"mean": BINARY16.layout})
        )
