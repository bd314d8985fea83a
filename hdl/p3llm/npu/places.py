"""Where vectors stand in the NPU's memories; places count slices of `lanes` elements.

Of what a linear layer takes and gives, each request that is under way has a place: its `pump`.

Each pseudo-channel has memories of its own for what comes from it and goes to it, with the same
places in all. Of a head a vector stands in one of them; all others are `spread` over all.
"""

from dataclasses import dataclass

from amaranth.utils import bits_for

from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import LANES


@dataclass(frozen=True)
class Places:
    """Where each vector begins, and how deep the memories are.

    Parameters
    ----------
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    """

    p: P3llmParameters

    def slices(self, numbers: int) -> int:
        """Slices of a vector."""
        return numbers // self.p.lanes

    def spread(self, place: int) -> int:
        """Slices of all pseudo-channels before a place in each."""
        return place * self.p.pseudo_channels

    def words(self, place: int) -> int:
        """Words of inputs before a place."""
        return place * self.p.lanes // self.p.word

    def columns(self, place: int) -> int:
        """Columns of FP16 numbers before a place."""
        return place * self.p.lanes // self.p.elements

    def results(self, place: int) -> int:
        """Results of the units before a place: each is half of a column's sums."""
        return place * self.p.lanes // self.p.result

    @property
    def address_bits(self) -> int:
        """Bits of a place in any of the NPU's memories or its end."""
        depths = (
            self.numbers_depth,
            self.spread(self.factors_depth),
            self.spread(self.inputs_depth),
            self.spread(max(self.sums_depth, self.results(self.sums_depth))),
            self.keys_depth,
            *self._turned,
        )
        return bits_for(max(depths))

    @property
    def count_bits(self) -> int:
        """Bits of a vector's number of slices."""
        p = self.p
        piece = p.longest_rounds * p.outputs if p.vocabulary else 0
        return bits_for(self.slices(max(p.qkv, p.width, p.feed_forward, p.capacity, piece)))

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
        """Bits of a place in columns that a pseudo-channel gives to the NPU."""
        return bits_for(max(self.columns(self.factors_depth), *self._turned))

    @property
    def word_bits(self) -> int:
        """Bits of a place in words of inputs, or of keys that the NPU turns."""
        return bits_for(max(self.words(self.inputs_depth), *self._turned))

    @property
    def _turned(self) -> tuple[int, int]:
        """Ends of the columns of keys that the NPU turns, and of their zero points."""
        return (self.keys(2), self.zeros(2)) if self.p.pre_rope else (0, 0)

    # Numbers in binary32.

    def state(self, pump: int) -> int:
        """Return the place of the hidden state."""
        return pump * self.slices(self.p.width)

    def projected(self, pump: int) -> int:
        """Return that of keys, values, queries."""
        return self.state(self.p.together) + pump * self.slices(self.p.qkv)

    def attended(self, pump: int) -> int:
        """Return that of what the heads give."""
        heads = self.p.heads * self.p.head_size
        return self.projected(self.p.together) + pump * self.slices(heads)

    def gate(self, pump: int) -> int:
        """Return that of one of the feed-forward's halves."""
        return self.attended(self.p.together) + pump * self.slices(self.p.feed_forward)

    @property
    def numbers_depth(self) -> int:
        """Slices of numbers."""
        return self.gate(self.p.together)

    # Sums of the compute units.

    def linear_sums(self, pump: int) -> int:
        """Of a linear layer."""
        return pump * self.slices(self.p.longest_rounds * self.p.block)

    @property
    def linear_end(self) -> int:
        """Behind those of a linear layer."""
        return self.linear_sums(self.p.together)

    def scores(self, turn: int, pump: int) -> int:
        """Of a query and all keys; attention's vectors have two places, used in turns."""
        # Keys that the NPU turns have no sums.
        tokens = 0 if self.p.pre_rope else self.p.capacity
        return self.linear_end + (2 * turn + pump) * self.slices(tokens)

    def heads(self, turn: int, pump: int) -> int:
        """Of probabilities and values."""
        return self.scores(2, 0) + (2 * turn + pump) * self.slices(self.p.block)

    @property
    def sums_depth(self) -> int:
        """Slices of sums."""
        return self.heads(2, 0)

    # FP16 numbers from the banks; each begins with a column.

    @property
    def norm(self) -> int:
        """A norm's weights."""
        return 0

    def smoothing(self, pump: int) -> int:
        """Smoothing factors of all heads."""
        before = self.p.positions(self.p.width) + pump * self.p.factors_positions
        return self.norm + self.slices(before * self.p.block)

    def rows(self, turn: int) -> int:
        """Row scales of a linear layer; the next one's come while these are in use."""
        before = turn * self.p.longest_rounds * self.p.block
        return self.smoothing(self.p.together) + self.slices(before)

    def key_scales(self, turn: int) -> int:
        """Scales of a head's keys, and as many of its values behind them."""
        return self.rows(2) + 2 * turn * self._scales

    def value_scales(self, turn: int) -> int:
        """Scales of a head's values."""
        return self.key_scales(turn) + self._scales

    @property
    def _scales(self) -> int:
        """Slices of all tokens' scales: whole sets of keys."""
        tokens = KEY_SET * self.p.block
        return self.slices(-(-self.p.capacity // tokens) * tokens)

    @property
    def factors_depth(self) -> int:
        """Slices of FP16 numbers."""
        return self.key_scales(2)

    # FP16 keys of the newest token.

    def newest_key(self, head: int) -> int:
        """Of a head under way: the next ones come when its queries are through."""
        return head % self.p.pseudo_channels * self.slices(self.p.head_size)

    @property
    def keys_depth(self) -> int:
        """Slices of FP16 keys."""
        return self.p.pseudo_channels * self.slices(self.p.head_size)

    # Columns of keys that were quantised before the rotary embedding, and of their zero points.

    def keys(self, turn: int) -> int:
        """Of a head; the next one's come while these are in use."""
        return turn * self.p.capacity // self.p.elements * (self.p.head_size // LANES)

    def zeros(self, turn: int) -> int:
        """Zero points of a head."""
        return turn * -(-self.p.capacity // (KEY_SET * self.p.block)) * self.p.units

    # Inputs of the compute units; each begins with a word.

    def vector_inputs(self, pump: int) -> int:
        """Of a linear layer."""
        return pump * self.slices(self.p.e4m3.width)

    def query_inputs(self, turn: int, pump: int) -> int:
        """Codes of a query."""
        before = self.vector_inputs(self.p.together)
        return before + (2 * turn + pump) * self.slices(self.p.head_size)

    def probability_inputs(self, turn: int, pump: int) -> int:
        """Probabilities of a head."""
        return self.query_inputs(2, 0) + (2 * turn + pump) * self.slices(self.p.capacity)

    @property
    def inputs_depth(self) -> int:
        """Slices of inputs."""
        return self.probability_inputs(2, 0)
