"""Dimensions of the two-pass quantisers, and their treatment of FP16 operands."""

from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.arith.float_format import BINARY16
from hdl.arith.float_order import is_nan
from hdl.arith.named import named
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require


@parameter_object
class QuantiserParameters(Parameters):
    """Dimensions of a two-pass quantiser.

    Parameters
    ----------
    lanes : int
        Elements per slice.
    width : int
        Elements of the longest vector, a multiple of `lanes` and at least two slices.
    vectors : int
        Maximum number of complete vectors, in flight or stored.
    scale_stages : int
        Pipeline stages of the division for the scale of a vector.
    quotient_stages : int
        Pipeline stages of a lane's quotient.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 32
    width: Annotated[int, Range(2, 16384, "elements")] = 4096
    vectors: Annotated[int, Range(1, 16, "vectors")] = 4
    scale_stages: Annotated[int, Range(1, 10, "stages")] = 10
    quotient_stages: Annotated[int, Range(1, 7, "stages")] = 7

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.width % self.lanes == 0, "width must be a multiple of lanes", self.width)
        require(self.width >= 2 * self.lanes, "width must be at least two slices", self.width)
        require(self.slices <= 4000, "width must be at most 4000 slices", self.width)

    @property
    def slices(self) -> int:
        """Number of slices of the longest vector."""
        return self.width // self.lanes

    @property
    def values_layout(self) -> data.ArrayLayout:
        """A slice's FP16 numbers."""
        return data.ArrayLayout(16, self.lanes)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a vector."""
        return data.StructLayout({"values": self.values_layout, "last": 1})


def finite_magnitude(m: Module, value: Value) -> Signal:
    """Return an FP16 code's magnitude; 65504 for an infinity, 0 for a NaN."""
    special = value[10:15].all()
    limited = Mux(special, Const(BINARY16.max_finite, 15), value[:15])
    nan = named(m, is_nan(BINARY16, value))
    return named(m, limited & ~nan.replicate(15), "magnitude")


def finite(m: Module, value: Value) -> Signal:
    """Return an FP16 code with `finite_magnitude`; +0 for a NaN."""
    return named(m, Cat(finite_magnitude(m, value), value[15] & ~is_nan(BINARY16, value)), "code")
