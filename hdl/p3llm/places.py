"""Places of vectors in the NPU's memories, in slices of `lanes` elements.

Inputs and results of linear layers have one place for each request in flight, its `pump`.

Each pseudo-channel has its own memories for data that it outputs and receives, with the same places
in all. Vectors of a head are in one of these memories; all others are distributed over all of them
(`spread`).
"""

from dataclasses import dataclass

from amaranth.utils import bits_for

from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES


@dataclass(frozen=True)
class Places:
    """First places of all vectors, and depths of the memories.

    Parameters
    ----------
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    """

    p: P3llmParameters

    def slices(self, numbers: int) -> int:
        """Return the number of slices of a vector."""
        return numbers // self.p.lanes

    def spread(self, place: int) -> int:
        """Return the number of slices in all pseudo-channels before a place in each."""
        return place * self.p.pseudo_channels

    def words(self, place: int) -> int:
        """Return the number of words of inputs before a place."""
        return place * self.p.lanes // self.p.word

    def columns(self, place: int) -> int:
        """Return the number of columns of FP16 numbers before a place."""
        return place * self.p.lanes // self.p.elements

    def results(self, place: int) -> int:
        """Return the number of results before a place; a result is half of a unit's sums."""
        return place * self.p.lanes // self.p.result

    @property
    def address_bits(self) -> int:
        """Bits of a place in any of the NPU's memories, or of its end."""
        depths = (
            self.numbers_depth,
            self.spread(self.factors_depth),
            self.spread(self.inputs_depth),
            self.spread(max(self.sums_depth, self.results(self.sums_depth))),
            *self._turned,
        )
        return bits_for(max(depths))

    @property
    def count_bits(self) -> int:
        """Bits of the number of slices of a vector."""
        p = self.p
        piece = p.longest_rounds * p.round_outputs if p.vocabulary_size else 0
        return bits_for(self.slices(max(p.qkv, p.hidden_size, p.intermediate_size, p.slots, piece)))

    @property
    def numbers_bits(self) -> int:
        """Bits of a place in binary32 numbers."""
        return bits_for(self.numbers_depth)

    @property
    def sums_bits(self) -> int:
        """Bits of a place in sums of all pseudo-channels."""
        return bits_for(self.spread(self.sums_depth))

    @property
    def factors_bits(self) -> int:
        """Bits of a place in FP16 numbers of all pseudo-channels."""
        return bits_for(self.spread(self.factors_depth))

    @property
    def result_bits(self) -> int:
        """Bits of a place in results of a pseudo-channel's units."""
        return bits_for(self.results(self.sums_depth))

    @property
    def column_bits(self) -> int:
        """Bits of a place in columns that the NPU receives from a pseudo-channel."""
        return bits_for(max(self.columns(self.factors_depth), *self._turned))

    @property
    def word_bits(self) -> int:
        """Bits of a place in words of inputs, or in columns of keys that the NPU rotates."""
        return bits_for(max(self.words(self.inputs_depth), *self._turned))

    @property
    def _turned(self) -> tuple[int, int]:
        """Ends of the columns of keys that the NPU rotates, and of their zero points."""
        return (self.keys(2), self.zeros(2)) if self.p.pre_rope else (0, 0)

    # Places of binary32 numbers.

    def state(self, pump: int) -> int:
        """Return the place of the hidden state."""
        return pump * self.slices(self.p.hidden_size)

    def projected(self, pump: int) -> int:
        """Return the place of keys, values and queries."""
        return self.state(self.p.in_flight) + pump * self.slices(self.p.qkv)

    def attended(self, pump: int) -> int:
        """Return the place of the heads' outputs."""
        heads = self.p.heads * self.p.head_size
        return self.projected(self.p.in_flight) + pump * self.slices(heads)

    def gate(self, pump: int) -> int:
        """Return the place of the gate."""
        return self.attended(self.p.in_flight) + pump * self.slices(self.p.intermediate_size)

    @property
    def numbers_depth(self) -> int:
        """Number of slices of binary32 numbers."""
        return self.gate(self.p.in_flight)

    # Places of sums of the compute units.

    def linear_sums(self, pump: int) -> int:
        """Return the place of a linear layer's sums."""
        return pump * self.slices(self.p.longest_rounds * self.p.block)

    @property
    def linear_end(self) -> int:
        """End of the sums of a linear layer."""
        return self.linear_sums(self.p.in_flight)

    def scores(self, turn: int, pump: int) -> int:
        """Return the place of the sums of a query and all keys; the two turns alternate."""
        # Keys that the NPU rotates have no sums.
        tokens = 0 if self.p.pre_rope else self.p.slots
        return self.linear_end + (2 * turn + pump) * self.slices(tokens)

    def head_sums(self, turn: int, pump: int) -> int:
        """Return the place of the sums of probabilities and values."""
        return self.scores(2, 0) + (2 * turn + pump) * self.slices(self.p.block)

    @property
    def sums_depth(self) -> int:
        """Number of slices of sums."""
        return self.head_sums(2, 0)

    # Places of FP16 numbers from the banks; each vector starts at a column.

    @property
    def norm_weights(self) -> int:
        """Place of a norm's weights."""
        return 0

    def smoothing(self, pump: int) -> int:
        """Return the place of the smoothing factors of all heads."""
        before = self.p.positions(self.p.hidden_size) + pump * self.p.smoothing_positions
        return self.norm_weights + self.slices(before * self.p.block)

    def row_scales(self, turn: int) -> int:
        """Return the place of a linear layer's row scales; the two turns alternate."""
        before = turn * self.p.longest_rounds * self.p.block
        return self.smoothing(self.p.in_flight) + self.slices(before)

    def key_scales(self, turn: int) -> int:
        """Return the place of the scales of a head's keys; those of its values follow."""
        return self.row_scales(2) + 2 * turn * self._scales

    def value_scales(self, turn: int) -> int:
        """Return the place of the scales of a head's values."""
        return self.key_scales(turn) + self._scales

    def scale_columns(self, turn: int) -> tuple[int, int]:
        """Return the places of the scales of a head's keys and values, in columns."""
        return self.columns(self.key_scales(turn)), self.columns(self.value_scales(turn))

    @property
    def _scales(self) -> int:
        """Number of slices of all tokens' scales, in whole sets of keys."""
        tokens = KEY_SET * self.p.block
        return self.slices(-(-self.p.slots // tokens) * tokens)

    @property
    def factors_depth(self) -> int:
        """Number of slices of FP16 numbers."""
        return self.key_scales(2)

    # Places of columns of keys that were quantised before the rotary embedding.

    def keys(self, turn: int) -> int:
        """Return the place of a head's keys; the two turns alternate."""
        return turn * self.p.slots // self.p.elements * (self.p.head_size // PE_LANES)

    def zeros(self, turn: int) -> int:
        """Return the place of the zero points of a head's keys."""
        return turn * -(-self.p.slots // (KEY_SET * self.p.block)) * self.p.units

    # Places of inputs of the compute units; each vector starts at a word.

    def vector_inputs(self, pump: int) -> int:
        """Return the place of a linear layer's inputs, except for those of `down_proj`."""
        return pump * self.slices(max(self.p.hidden_size, self.p.query_size))

    def gated_inputs(self, pump: int) -> int:
        """Return the place of the inputs of `down_proj`."""
        before = self.vector_inputs(self.p.in_flight)
        return before + pump * self.slices(self.p.intermediate_size)

    def query_inputs(self, turn: int, pump: int) -> int:
        """Return the place of the codes of a query."""
        before = self.gated_inputs(self.p.in_flight)
        return before + (2 * turn + pump) * self.slices(self.p.head_size)

    def probability_inputs(self, turn: int, pump: int) -> int:
        """Return the place of the codes of a head's probabilities."""
        return self.query_inputs(2, 0) + (2 * turn + pump) * self.slices(self.p.slots)

    @property
    def inputs_depth(self) -> int:
        """Number of slices of inputs."""
        return self.probability_inputs(2, 0)
