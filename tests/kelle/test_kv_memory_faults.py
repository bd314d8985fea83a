"""Each fault in the memory side is found: by the simulation of its unit, or by a test file."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, proof_finds, simulation_finds

EDRAM = "hdl/kelle/kv_edram.py"
WALKER = "hdl/kelle/refresh_walker.py"
THRESHOLD = "hdl/kelle/refresh_threshold.py"
TABLE = "hdl/kelle/slot_table.py"
CONTROLLER = "hdl/kelle/eviction_controller.py"
VECTORS = "hdl/kelle/recomputed_vectors.py"
PROOF = "tests/kelle/test_refresh_controller.py"
FAULTS = [
    (
        Fault(
            "an entry that changed its group is not refreshed for it",
            WALKER,
            "in_sweep | (self.hst != was_hst)",
            "in_sweep",
        ),
        PROOF,
    ),
    (
        Fault(
            "a sweep is urgent a cycle late",
            WALKER,
            "self.elapsed >= self.patience",
            "self.elapsed > self.patience",
        ),
        PROOF,
    ),
    (
        Fault(
            "only the first word of an entry is waited for",
            WALKER,
            "(taken & last_word)))",
            "taken))",
        ),
        PROOF,
    ),
    (
        Fault(
            "an address on offer changes with the threshold",
            WALKER,
            "self.hst.eq(shown.score >= threshold)",
            "self.hst.eq(shown.score >= self.threshold)",
        ),
        PROOF,
    ),
    (
        Fault("intervals are a tick too long", WALKER, "(ticks + 1 >= self", "(ticks >= self"),
        "refresh_controller",
    ),
    (
        Fault(
            "everything counts as refreshed in HST",
            WALKER,
            "groups.write_data.eq(self.hst)",
            "groups.write_data.eq(1)",
        ),
        "refresh_controller",
    ),
    (
        Fault(
            "LST words are counted as HST",
            WALKER,
            "self.counts[0] + self.hst)",
            "self.counts[0] + 1)",
        ),
        "refresh_controller",
    ),
    (
        Fault(
            "the median needs more than half",
            THRESHOLD,
            "(reached << 1 >= total)",
            "(reached << 1 > total)",
        ),
        "refresh_controller",
    ),
    (
        Fault(
            "an old score stays in the histogram",
            THRESHOLD,
            "size.eq(size + joins - leaves)",
            "size.eq(size + joins)",
        ),
        "refresh_controller",
    ),
    (
        Fault(
            "a refresh slips in beside a read",
            EDRAM,
            "refresh.ready.eq(urgent | ~asked)",
            "refresh.ready.eq(1)",
        ),
        "kv_edram",
    ),
    (
        Fault(
            "a write meets a write-back",
            EDRAM,
            "write.ready.eq(~seized & ~Cat(*wrote_back.values()).any())",
            "write.ready.eq(~seized)",
        ),
        "kv_edram",
    ),
    (
        Fault(
            "an urgent refresh lets writes pass",
            EDRAM,
            "write.ready.eq(~seized & ~Cat",
            "write.ready.eq(~Cat",
        ),
        "kv_edram",
    ),
    (
        Fault(
            "nothing is written back",
            EDRAM,
            "bank.write_enable.eq(returns | (write",
            "bank.write_enable.eq((write",
        ),
        "tests/kelle/test_kv_edram.py",
    ),
    (
        Fault(
            "channels lie in the wrong bank",
            EDRAM,
            "channels[byte * p.banks + bank]",
            "channels[bank * p.word_bytes + byte]",
        ),
        "tests/kelle/test_kv_edram.py",
    ),
    (
        Fault(
            "the recent window is a token too short",
            CONTROLLER,
            "Mux(inside, ahead - (p.window - 1), 0)",
            "Mux(inside, ahead - (p.window - 2), 0)",
        ),
        "eviction_controller",
    ),
    (
        Fault("a sink too few", TABLE, "held.position < p.sinks", "held.position < p.sinks - 1"),
        "eviction_controller",
    ),
    (
        Fault(
            "half of the heads suffice for popularity",
            VECTORS,
            "(many > p.popular_heads)",
            "(many >= p.popular_heads)",
        ),
        "eviction_controller",
    ),
    (
        Fault(
            "a search does not wait for its step's token",
            CONTROLLER,
            "self.stepping | wave.alone",
            "1",
        ),
        "eviction_controller",
    ),
    (
        Fault(
            "a popular token's slots are not marked",
            TABLE,
            "~fresh & is_adopted)",
            "fresh & is_adopted)",
        ),
        "eviction_controller",
    ),
    (
        Fault(
            "a new token inherits its slot's importance",
            TABLE,
            "self.state.valid.eq(resident & ~fresh)",
            "self.state.valid.eq(resident | fresh)",
        ),
        "eviction_controller",
    ),
    (
        Fault(
            "the running maximum forgets all tiles but the last",
            TABLE,
            "together = Mux(fresh_search, 0, peaks) | peak",
            "together = peak",
        ),
        "eviction_controller",
    ),
    (
        Fault(
            "memories return new data on a collision",
            "hdl/stream/memory.py",
            "read_port(transparent_for=())",
            "read_port(transparent_for=(write,))",
        ),
        "refresh_controller",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("fault", "finder"), FAULTS, ids=[fault.meaning for fault, _ in FAULTS])
def test_fault_is_found(fault: Fault, finder: str, tmp_path: Path) -> None:
    """By the simulation of a unit, given as its name and preset, or by a file of tests."""
    copy = faulty_copy(fault, tmp_path)
    if finder.endswith(".py"):
        assert proof_finds(copy, finder)
    else:
        top, _, preset = finder.partition(" ")
        assert simulation_finds(copy, top, preset or "tiny")
