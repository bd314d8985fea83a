"""Functions, dimensions and payloads of LAD's special function module (SFM)."""

from fractions import Fraction
from typing import Annotated

from amaranth.lib import data, enum

from hdl.arith.float_format import BINARY16
from hdl.lad.fp16 import FP16
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.parameters import Parameters, Range, parameter_object, require


class Function(enum.Enum, shape=3):
    """Function to apply to a vector or a row.

    Members
    -------
    LAYER_NORM : int
        ``factor * (x - E(x)) / sqrt(V(x) + epsilon) + addend``, over a row.
    RMS_NORM : int
        ``factor * x / sqrt(E(x * x) + epsilon)``, over a row.
    ROTARY : int
        ``x * cos + rotated(x) * sin``, of one vector; the factors are cos, then sin.
    SILU : int
        ``x / (1 + exp(-x)) * factor``, of one vector; the factor is the output of `up_proj`.
    ADD : int
        ``x + addend``, of one vector: a residual addition.
    """

    LAYER_NORM = 0
    RMS_NORM = 1
    ROTARY = 2
    SILU = 3
    ADD = 4


@parameter_object
class SpecialFunctionModuleParameters(Parameters):
    """Dimensions and pipeline stages of a special function module.

    `docs/lad/sfm/special_function_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        Dimensions of the vector unit that the module uses.
    hidden_size : int
        Elements of a hidden state, the row that is normalised.
    lanes : int
        Elements whose sigmoids are computed in parallel.
    add_stages : int
        Register stages of an adder.
    exp_stages : int
        Register stages of an exponential.
    reciprocal_stages : int
        Register stages of a reciprocal.
    root_stages : int
        Register stages of the reciprocal square root.

    Raises
    ------
    ValueError
        If a parameter breaks its rule, the head size is odd, `hidden_size` is no multiple of
        the head size, or the head size is no multiple of the lanes; the message contains the
        rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    hidden_size: Annotated[int, Range(2, 8192, "elements")] = 4096
    lanes: Annotated[int, Range(1, 64, "elements")] = 16
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3
    exp_stages: Annotated[int, Range(1, 7, "stages")] = 5
    reciprocal_stages: Annotated[int, Range(1, 4, "stages")] = 4
    root_stages: Annotated[int, Range(1, 4, "stages")] = 3

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        size = self.vector.head_size
        require(size % 2 == 0, "head_size must be even", size)
        require(
            self.hidden_size % size == 0,
            "hidden_size must be a multiple of head_size",
            self.hidden_size,
        )
        require(size % self.lanes == 0, "lanes must be a divisor of head_size", self.lanes)

    @property
    def slices(self) -> int:
        """Vectors per row."""
        return self.hidden_size // self.vector.head_size

    @property
    def reciprocal_size(self) -> int:
        """The FP16 code of ``1 / hidden_size``."""
        return BINARY16.from_fraction(Fraction(1, self.hidden_size))

    @property
    def sigmoid_stages(self) -> int:
        """Register stages from an element to its sigmoid."""
        return self.exp_stages + self.add_stages + self.reciprocal_stages

    @property
    def sigmoid_cycles(self) -> int:
        """Cycles from a vector to its sigmoids."""
        return self.vector.head_size // self.lanes + self.sigmoid_stages + 1

    @property
    def product_distance(self) -> int:
        """Cycles from the first product of a SiLU to its second one."""
        return 1 + self.vector.vector_latency

    @property
    def gate_stages(self) -> int:
        """Cycles from the operands of a SiLU to its result at the vector unit."""
        return self.sigmoid_cycles + 2 * self.product_distance

    @property
    def in_flight(self) -> int:
        """Single vectors in the module at a time, a power of two: enough for the SiLU's rate."""
        interval = max(self.vector.head_size // self.lanes, 2)
        return max(4, 1 << (-(-(self.gate_stages + 4) // interval) - 1).bit_length())

    @property
    def pace(self) -> int:
        """Cycles per dot product of a row, so that each is added before the next one is ready."""
        return self.add_stages + 1

    @property
    def vector_layout(self) -> data.StructLayout:
        """Payload of `vectors`."""
        return data.StructLayout(
            {"values": self.vector.vector_layout, "function": Function, "epsilon": FP16}
        )

    @property
    def values_layout(self) -> data.StructLayout:
        """Payload of `factors`, `addends` and `results`."""
        return data.StructLayout({"values": self.vector.vector_layout})
