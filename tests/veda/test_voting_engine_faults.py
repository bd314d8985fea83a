"""Each fault in the voting engine is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

CASTER = "hdl/veda/vote_caster.py"
COUNTER = "hdl/veda/vote_counter.py"
THRESHOLD = "hdl/veda/vote_threshold.py"
FAULTS = [
    Fault(
        "a probability equal to the threshold gets a vote",
        CASTER,
        "element.payload.values[lane] < outcome",
        "element.payload.values[lane] <= outcome",
    ),
    Fault(
        "there is no fallback",
        CASTER,
        "Mux(outcome.payload.fallback, slot == outcome.payload.lowest, below)",
        "below",
    ),
    Fault(
        "the slots are not counted anew for each head",
        CASTER,
        "slot.eq(Mux(ends, 0, slot + 1))",
        "slot.eq(slot + 1)",
    ),
    Fault(
        "the FIFO does not hold a whole head and the threshold's latency",
        "hdl/veda/voting_parameters.py",
        "return self.capacity + self.threshold.latency + SLACK",
        "return self.capacity + SLACK",
    ),
    Fault(
        "the last of the smallest gets the fallback's vote",
        THRESHOLD,
        "(value < smallest)",
        "(value <= smallest)",
    ),
    Fault(
        "the smallest element of one head remains for the next",
        THRESHOLD,
        "(first[0] | (value < smallest))",
        "(value < smallest)",
    ),
    Fault(
        "the sum of squares wraps",
        THRESHOLD,
        "total | beyond.replicate(len(total))",
        "total",
    ),
    Fault("a threshold is cut", THRESHOLD, "+ significand + up", "+ significand"),
    Fault(
        "the variance is not kept from being negative",
        THRESHOLD,
        "root.operand.payload.eq(Mux(whole == 0, 0, excess))",
        "root.operand.payload.eq(excess)",
    ),
    Fault(
        "the later slot wins among equals",
        COUNTER,
        "(none | (self.total > best.votes))",
        "(none | (self.total >= best.votes))",
    ),
    Fault(
        "the maximum of one search remains for the next",
        COUNTER,
        "none = item.first | ~best.found",
        "none = ~best.found",
    ),
    Fault(
        "a new token inherits its slot's count",
        COUNTER,
        "Mux(item.slot == step.new_slot, 0, self.counts_in.payload)",
        "self.counts_in.payload",
    ),
    Fault(
        "counts wrap",
        COUNTER,
        "self.total.eq(total)",
        "self.total.eq(count + added)",
    ),
    Fault(
        "the counts before this step's votes are compared",
        COUNTER,
        "total, _saturated = saturate(count + added, Shape(p.count_bits))",
        "total, _saturated = saturate(count + Mux(adding.searches, 0, added), Shape(p.count_bits))",
    ),
    Fault(
        "a pass over few slots does not wait for its own writes",
        COUNTER,
        "(step.length >= SHORT)",
        "(step.length >= 1)",
    ),
    Fault(
        "a further search does not wait for the victim",
        COUNTER,
        "(counting & (step.length >= SHORT))",
        "(step.length >= SHORT)",
    ),
    Fault(
        "a victim that nobody took is overwritten",
        COUNTER,
        "blocked.eq(names & victim.valid)",
        "blocked.eq(0)",
    ),
    Fault(
        "counts of victims are sent as well",
        COUNTER,
        "keeps = ~item.selects | ~eligible | remains",
        "keeps = ~item.selects | ~eligible | remains | 1",
    ),
    Fault(
        "a victim may be found twice",
        COUNTER,
        "& (item.slot > last_victim.slot)",
        "& (item.slot >= last_victim.slot)",
    ),
]
LANES = [
    Fault(
        "a lane without a head votes",
        CASTER,
        "against & ~last_turn if",
        "against if",
    ),
    Fault(
        "protected slots are victims",
        COUNTER,
        "item.slot >= p.reserved if p.protect_sink else 1",
        "1",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("preset", "fault"),
    [("tiny", fault) for fault in FAULTS] + [("tiny_lanes", fault) for fault in LANES],
    ids=lambda value: value.meaning if isinstance(value, Fault) else value,
)
def test_fault_is_found(preset: str, fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), "voting_engine", preset)
