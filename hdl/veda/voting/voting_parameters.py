"""Dimensions of VEDA's voting engine, and payloads of its streams."""

from dataclasses import field
from typing import Annotated

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data, enum

from hdl.arith.float_format import BINARY16
from hdl.parameters import Parameters, Range, parameter_object
from hdl.veda.voting.threshold_parameters import PROBABILITY_BITS, VoteThresholdParameters

SEARCH_LANES = 16
"""Maximum number of counts that are compared at a time when a cache is trimmed."""

SLACK = 4
"""Elements that arrive between a threshold and the first vote, and one spare."""


class CountUse(enum.Enum, shape=2):
    """Use of a new vote count, besides being stored for the layer's next round of heads."""

    STORE = 0
    """None: heads have yet to vote, or the step's victims are not known yet."""

    OUTPUT = 1
    """It is output; the step has no victim."""

    ARGMAX = 2
    """It is output; the slot with the largest count of the pass is the victim."""

    SELECT = 3
    """It is output unless its slot is one of several victims."""


@parameter_object
class VotingEngineParameters(Parameters):
    """Dimensions of a voting engine, its golden model and its testbench.

    Parameters
    ----------
    threshold : VoteThresholdParameters
        Dimensions of the threshold unit, with the `slots` of a layer.
    heads : int
        Heads of a layer, all of which vote.
    lanes : int
        Heads in lock-step.
    count_bits : int
        Bits of a vote count.
    reserved : int
        The paper's R: the first tokens of a text, which cast no vote: `vote` is 0 in their steps.
    protect_sink : bool
        Exclude the first `reserved` slots from eviction.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    threshold: VoteThresholdParameters = field(default_factory=VoteThresholdParameters)
    heads: Annotated[int, Range(1, 128, "heads")] = 32
    lanes: Annotated[int, Range(1, 16, "heads")] = 1
    count_bits: Annotated[int, Range(2, 16, "bits")] = 16
    reserved: Annotated[int, Range(0, "slots", "tokens")] = 32
    protect_sink: bool = False

    @property
    def slots(self) -> int:
        """Slots of a layer."""
        return self.threshold.slots

    @property
    def slot_bits(self) -> int:
        """Bits of a slot's index."""
        return self.threshold.slot_bits

    @property
    def search_lanes(self) -> int:
        """Counts per word of the count memory, a power of two; there are at least two words."""
        return min(SEARCH_LANES, 1 << (self.slots // 2).bit_length() - 1)

    @property
    def count_words(self) -> int:
        """Words of the count memory."""
        return -(-self.slots // self.search_lanes)

    @property
    def rounds(self) -> int:
        """Rounds of `lanes` heads in which all heads have voted."""
        return -(-self.heads // self.lanes)

    @property
    def fifo_depth(self) -> int:
        """Entries of the FIFO: a head, and the elements that arrive before its threshold."""
        return self.slots + self.threshold.latency + SLACK

    @property
    def beat_layout(self) -> data.StructLayout:
        """The probability of one slot for each lane."""
        return data.StructLayout(
            {"values": data.ArrayLayout(BINARY16.layout, self.lanes), "last": 1}
        )

    @property
    def waiting_layout(self) -> data.StructLayout:
        """A beat in the FIFO, without the bits that are always zero."""
        codes = data.ArrayLayout(unsigned(PROBABILITY_BITS), self.lanes)
        return data.StructLayout({"values": codes, "last": 1})

    @property
    def votes_shape(self) -> Shape:
        """Votes of a round of heads against a slot."""
        return unsigned(self.lanes.bit_length())

    @property
    def step_layout(self) -> data.StructLayout:
        """A step: the work for one token in one layer."""
        length = unsigned(self.threshold.length_bits)
        return data.StructLayout(
            {"length": length, "vote": 1, "new_slot": self.slot_bits, "evictions": length}
        )

    @property
    def total_layout(self) -> data.StructLayout:
        """The new count of a slot in a pass over a layer's slots."""
        return data.StructLayout(
            {
                "slot": self.slot_bits,
                "votes": self.count_bits,
                "first": 1,
                "last": 1,
                "use": CountUse,
            }
        )

    @property
    def victim_layout(self) -> data.StructLayout:
        """A victim, or the absence of one."""
        return data.StructLayout({"slot": self.slot_bits, "votes": self.count_bits, "found": 1})
