"""What the parts of LAD's attention computation module share: dimensions and payloads."""

from typing import Annotated

from amaranth.lib import data

from hdl.arith.float_format import BINARY32, NAMED_FORMATS, FloatFormat
from hdl.lad.fp16 import FP16
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.parameters import OneOf, Parameters, Range, parameter_object


@parameter_object
class AttentionComputationModuleParameters(Parameters):
    """Dimensions of an attention computation module.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        The vector units, one a lane.
    lanes : int
        Active positions, or columns of the caches, in a cycle.
    updates : int
        Positions a lane, in a step, with which the caches are updated.
    cache_format : FloatFormat
        Of the intermediate caches, and of all sums over positions.
    cache_stages : int
        Register stages of an adder of that format, and sums interleaved in it.
    add_stages : int
        Register stages of the other adders.
    reciprocal_stages : int
        Register stages of the reciprocal.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    lanes: Annotated[int, Range(3, 3, "lanes")] = 3
    updates: Annotated[int, Range(2, 4096, "positions")] = 1366
    cache_format: Annotated[FloatFormat, OneOf(NAMED_FORMATS)] = BINARY32
    cache_stages: Annotated[int, Range(1, 4, "stages")] = 3
    add_stages: Annotated[int, Range(1, 4, "stages")] = 2
    reciprocal_stages: Annotated[int, Range(1, 4, "stages")] = 4

    @property
    def columns(self) -> int:
        """Columns of the caches: those of A, each with its B and C, and that of D, E and F."""
        return self.vector.head_size + 1

    @property
    def groups(self) -> int:
        """Groups of `lanes` columns."""
        return -(-self.columns // self.lanes)

    @property
    def factor_stages(self) -> int:
        """Register stages from coefficients to a correction factor."""
        return self.vector.multiply_stages + 2 * self.add_stages

    @property
    def product_latency(self) -> int:
        """Cycles from a task's operands to the vector units' `o_vec`, behind a register."""
        return self.vector.vector_latency + 1

    @property
    def sum_latency(self) -> int:
        """Cycles from a task's operands to the vector units' `o_scal`, behind a register."""
        return self.vector.scalar_latency + 1

    @property
    def pass_cycles(self) -> int:
        """Cycles from one updated position to the next: a column is read after it was written."""
        return max(self.groups, self.cache_stages + 2)

    @property
    def settle_cycles(self) -> int:
        """Cycles until the last columns' parts are there: the vector units', and the factors'."""
        return self.sum_latency + self.factor_stages + 4

    @property
    def drain_cycles(self) -> int:
        """Cycles until the last column is written, and the denominator's reciprocal is there."""
        written = self.vector.multiply_stages + self.product_latency + self.cache_stages + 3
        return max(written, self.reciprocal_stages + 3)

    @property
    def word_layout(self) -> data.ArrayLayout:
        """A column of A, and its elements of B and C; or D, E and F."""
        return data.ArrayLayout(self.cache_format.width, self.vector.head_size + 2)

    @property
    def cache_layout(self) -> data.StructLayout:
        """Payload of the streams of caches."""
        return data.StructLayout({"word": self.word_layout})

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of the stream of steps."""
        return data.StructLayout({"query": self.vector.vector_layout, "maximum": FP16})

    @property
    def coefficient_layout(self) -> data.StructLayout:
        """A position's differences of coefficients, and whether the caches follow them."""
        return data.StructLayout({"alpha_score": FP16, "alpha": FP16, "beta": FP16, "update": 1})

    @property
    def coefficients_layout(self) -> data.StructLayout:
        """Payload of the stream of coefficients."""
        return data.StructLayout(
            {
                "lanes": data.ArrayLayout(self.coefficient_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
            }
        )

    @property
    def factor_layout(self) -> data.StructLayout:
        """A correction factor, and what an update needs of its position."""
        return data.StructLayout({"factor": FP16, "alpha": FP16, "beta": FP16, "update": 1})

    @property
    def factors_layout(self) -> data.StructLayout:
        """What waits for the vectors of a transfer."""
        return data.StructLayout(
            {
                "lanes": data.ArrayLayout(self.factor_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
            }
        )

    @property
    def vectors_layout(self) -> data.StructLayout:
        """Payload of the stream of keys and values."""
        vectors = data.ArrayLayout(self.vector.vector_layout, self.lanes)
        return data.StructLayout({"keys": vectors, "values": vectors})

    @property
    def output_layout(self) -> data.StructLayout:
        """Payload of the stream of outputs."""
        return data.StructLayout({"values": self.vector.vector_layout, "not_positive": 1})
