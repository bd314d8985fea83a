"""Each fault put into the prefill selector is found by its simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

SUMS = "hdl/kelle/prefill_sums.py"
SEARCH = "hdl/kelle/threshold_search.py"
SELECTOR = "hdl/kelle/prefill_selector.py"
FAULTS = [
    Fault(
        "a slice adds to what its tile had before the slice before it",
        SUMS,
        "Mux(again, before[lane], self.word[lane])",
        "self.word[lane]",
    ),
    Fault("queries give to tokens behind them", SUMS, "m.If(~seen[lane])", "m.If(0 & ~seen[lane])"),
    Fault("sums wrap", SUMS, "saturate(total, signed(evictor.score_width))[0]", "total"),
    Fault(
        "the window's tokens are candidates",
        SEARCH,
        "(self.text_last - p.eviction.window)[: p.place_bits]",
        "self.text_last",
    ),
    Fault("sinks are candidates", SEARCH, "if p.eviction.sinks:", "if False:"),
    Fault("one candidate too few is enough", SEARCH, "total >= p.places", "total + 1 >= p.places"),
    Fault("a pass counts on", SEARCH, "tile.eq(0), total.eq(0)]", "tile.eq(0)]"),
    Fault(
        "a sink too few",
        SELECTOR,
        "position[2] < eviction.sinks",
        "position[2] + 1 < eviction.sinks",
    ),
    Fault(
        "the recent window is a token too short",
        SELECTOR,
        "position[2] + eviction.window > sums",
        "position[2] + eviction.window - 1 > sums",
    ),
    Fault("all equal tokens are kept", SELECTOR, "ties.eq(ties - 1)", "ties.eq(ties)"),
    Fault(
        "a text that exceeds the budget by one is kept as a whole",
        SELECTOR,
        "text_last < eviction",
        "text_last <= eviction",
    ),
    Fault(
        "half of the heads suffice for popularity",
        SELECTOR,
        "count > eviction.popular_heads",
        "count + 1 > eviction.popular_heads",
    ),
    Fault("recent tokens are recomputed", SELECTOR, "& ~recent & (used", "& (used"),
    Fault(
        "heads of the layer before count",
        SELECTOR,
        "Mux(self.head == 0, 0, marks.read_data[: self.count_bits])",
        "marks.read_data[: self.count_bits]",
    ),
    Fault("vectors are not free again", SELECTOR, "[slot.eq(0), used.eq(0)]", "[slot.eq(0)]"),
    Fault(
        "what leaves does not wait",
        SELECTOR,
        "emits & (~self.prefill.valid | self.prefill.ready)",
        "emits",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.meaning for fault in FAULTS])
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), "prefill_selector", "tiny")
