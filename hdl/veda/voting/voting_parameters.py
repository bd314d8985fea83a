"""Dimensions of VEDA's voting engine, and what its streams carry."""

from dataclasses import field
from typing import Annotated

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object
from hdl.veda.voting.threshold_parameters import PROBABILITY_BITS, VoteThresholdParameters

SEARCH_LANES = 16
"""Counts that are compared at a time when a cache is trimmed, at most."""

SLACK = 4
"""Elements that arrive between a threshold and the first vote, and one to spare."""


@parameter_object
class VotingEngineParameters(Parameters):
    """Dimensions of a voting engine; they also drive its golden model and its testbench.

    Parameters
    ----------
    threshold : VoteThresholdParameters
        `capacity`, the slots of a layer at most.
    heads : int
        Heads of a layer, all of which vote.
    lanes : int
        Heads in lock-step.
    count_bits : int
        Bits of a vote count.
    reserved : int
        The paper's R: the first tokens of a text, which the scheduler lets cast no vote.
    protect_sink : bool
        Whether the first `reserved` slots are never victims.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    threshold: VoteThresholdParameters = field(default_factory=VoteThresholdParameters)
    heads: Annotated[int, Range(1, 128, "heads")] = 32
    lanes: Annotated[int, Range(1, 16, "heads")] = 1
    count_bits: Annotated[int, Range(2, 16, "bits")] = 16
    reserved: Annotated[int, Range(0, "capacity", "tokens")] = 32
    protect_sink: bool = False

    @property
    def capacity(self) -> int:
        """Slots of a layer."""
        return self.threshold.capacity

    @property
    def slot_bits(self) -> int:
        """Bits of a slot."""
        return self.threshold.slot_bits

    @property
    def search_lanes(self) -> int:
        """Counts of a word of the count memory, a power of two; there are at least two words."""
        return min(SEARCH_LANES, 1 << (self.capacity // 2).bit_length() - 1)

    @property
    def count_words(self) -> int:
        """Words of the count memory."""
        return -(-self.capacity // self.search_lanes)

    @property
    def rounds(self) -> int:
        """Times that `lanes` heads vote, until all have voted."""
        return -(-self.heads // self.lanes)

    @property
    def fifo_depth(self) -> int:
        """Elements that can wait: a head, and what arrives before its threshold is known."""
        return self.capacity + self.threshold.latency + SLACK

    @property
    def beat_layout(self) -> data.StructLayout:
        """The probability of one slot for each lane."""
        return data.StructLayout(
            {"values": data.ArrayLayout(BINARY16.layout, self.lanes), "last": 1}
        )

    @property
    def waiting_layout(self) -> data.StructLayout:
        """A beat that waits for its heads' thresholds, without the bits that are always zero."""
        codes = data.ArrayLayout(unsigned(PROBABILITY_BITS), self.lanes)
        return data.StructLayout({"values": codes, "last": 1})

    @property
    def votes_shape(self) -> Shape:
        """Votes of a round of heads against a slot."""
        return unsigned(self.lanes.bit_length())

    @property
    def layer_layout(self) -> data.StructLayout:
        """What to do for one token in one layer."""
        length = unsigned(self.threshold.length_bits)
        return data.StructLayout(
            {"length": length, "vote": 1, "new_slot": self.slot_bits, "evictions": length}
        )

    @property
    def victim_layout(self) -> data.StructLayout:
        """The outcome of a search."""
        return data.StructLayout({"slot": self.slot_bits, "votes": self.count_bits, "found": 1})
