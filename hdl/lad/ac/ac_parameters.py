"""Dimensions and payloads of LAD's attention computation (AC) module."""

from typing import Annotated

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from hdl.arith.float_format import BINARY32, NAMED_FORMATS, FloatFormat
from hdl.lad.fp16 import FP16
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.parameters import OneOf, Parameters, Range, parameter_object


@parameter_object
class AttentionComputationModuleParameters(Parameters):
    """Dimensions of an AC module.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        Dimensions of the vector units; each lane has one.
    lanes : int
        Active positions, or columns of the intermediate caches, processed per cycle.
    updates : int
        Capacity of the store for U, the positions that update the caches, per lane. A step with
        more of them is computed in parts.
    cache_format : FloatFormat
        Format of the intermediate caches A to F and of all sums over positions.
    cache_stages : int
        Register stages of an adder in `cache_format`; as many partial sums are interleaved in it.
    add_stages : int
        Register stages of the other adders.
    reciprocal_stages : int
        Register stages of the reciprocal.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    lanes: Annotated[int, Range(3, 3, "lanes")] = 3
    updates: Annotated[int, Range(2, 4096, "positions")] = 16
    cache_format: Annotated[FloatFormat, OneOf(NAMED_FORMATS)] = BINARY32
    cache_stages: Annotated[int, Range(1, 4, "stages")] = 3
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3
    reciprocal_stages: Annotated[int, Range(1, 4, "stages")] = 4

    @property
    def columns(self) -> int:
        """Columns of the caches: d columns of A, each with its B and C, and one of D, E and F."""
        return self.vector.head_size + 1

    @property
    def groups(self) -> int:
        """Groups of `lanes` columns, the last one possibly incomplete."""
        return -(-self.columns // self.lanes)

    @property
    def factor_stages(self) -> int:
        """Register stages from coefficients to a correction factor, the paper's cf."""
        return self.vector.multiply_stages + 2 * self.add_stages

    @property
    def product_latency(self) -> int:
        """Cycles from a task's operands to the addition of the units' `o_vec`, widened first."""
        return self.vector.vector_latency + 1

    @property
    def sum_latency(self) -> int:
        """Cycles from a task's operands to the units' `o_scal`."""
        return self.vector.scalar_latency

    @property
    def pass_cycles(self) -> int:
        """Cycles per updated position, at least those until a column can be read again."""
        return max(self.groups, self.cache_stages + 2)

    @property
    def part_latency(self) -> int:
        """Cycles from the read of columns to their mode-based parts."""
        return 2 + self.sum_latency + self.factor_stages

    @property
    def pass_lead(self) -> int:
        """Cycles before the end of a step's settling in which the next step's columns can be read.

        The step's mode-based part is added up to `cache_stages` + 1 cycles after that end. It must
        not be overwritten before.
        """
        return self.part_latency - self.cache_stages - 1

    @property
    def word_layout(self) -> data.ArrayLayout:
        """A column of A with its elements of B and C; in the last column D, E and F."""
        return data.ArrayLayout(self.cache_format.width, self.vector.head_size + 2)

    @property
    def group_shape(self) -> Shape:
        """Shape of the number of a group of columns; at least one bit, also of a single group."""
        return unsigned(max((self.groups - 1).bit_length(), 1))

    @property
    def total_layout(self) -> data.ArrayLayout:
        """Numerator and, as the last element, denominator, in the format of the caches."""
        return data.ArrayLayout(self.cache_format.width, self.columns)

    @property
    def scalars_layout(self) -> data.ArrayLayout:
        """Addends of the last two elements of a word: of B and C, or of E and F."""
        return data.ArrayLayout(FP16, 2)

    @property
    def cache_layout(self) -> data.StructLayout:
        """Payload of `caches` and `updated`."""
        return data.StructLayout({"word": self.word_layout})

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of `steps`."""
        return data.StructLayout({"query": self.vector.vector_layout, "maximum": FP16})

    @property
    def coefficient_layout(self) -> data.StructLayout:
        """Coefficients of one active position; `update` is 1 for a position of U."""
        return data.StructLayout({"alpha_score": FP16, "alpha": FP16, "beta": FP16, "update": 1})

    @property
    def coefficients_layout(self) -> data.StructLayout:
        """Payload of `coefficients`."""
        return data.StructLayout(
            {
                "lanes": data.ArrayLayout(self.coefficient_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
            }
        )

    @property
    def factor_layout(self) -> data.StructLayout:
        """Correction factor of one position, with the coefficients for the update of the caches."""
        return data.StructLayout({"factor": FP16, "alpha": FP16, "beta": FP16, "update": 1})

    @property
    def factors_layout(self) -> data.StructLayout:
        """Factors of a transfer, held until its vectors arrive."""
        return data.StructLayout(
            {
                "lanes": data.ArrayLayout(self.factor_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
            }
        )

    @property
    def vectors_layout(self) -> data.StructLayout:
        """Payload of `vectors`."""
        vectors = data.ArrayLayout(self.vector.vector_layout, self.lanes)
        return data.StructLayout({"keys": vectors, "values": vectors})

    @property
    def output_layout(self) -> data.StructLayout:
        """Payload of `outputs`."""
        return data.StructLayout({"values": self.vector.vector_layout, "not_positive": 1})
