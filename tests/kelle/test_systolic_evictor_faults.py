"""Each fault in the systolic evictor is found by the simulation, and by the proof as well."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, proof_finds, simulation_finds

EVICTOR = "hdl/kelle/systolic_evictor.py"
PROOF = "tests/kelle/test_systolic_evictor_proof.py"
FAULTS = [
    Fault(
        "a later slot wins among equals",
        EVICTOR,
        "Cat(1, (x & y)",
        "Cat(0, (x & y)",
    ),
    Fault(
        "a later tile wins among equals",
        EVICTOR,
        "(minimum.importance < self.best.importance)",
        "(minimum.importance <= self.best.importance)",
    ),
    Fault("the row's number is one too high", EVICTOR, "row.row.eq(i)", "row.row.eq(i + 1)"),
    Fault(
        "protected tokens are candidates",
        EVICTOR,
        "lane.valid & ~lane.protect & smaller",
        "lane.valid & smaller",
    ),
    Fault(
        "empty slots are candidates",
        EVICTOR,
        "lane.valid & ~lane.protect & smaller",
        "~lane.protect & smaller",
    ),
    Fault(
        "sums wrap instead of saturating",
        EVICTOR,
        "Mux(saturated, total[-1].replicate(p.score_width) ^ top, total)",
        "total",
    ),
    Fault(
        "the preloaded importance is ignored",
        EVICTOR,
        "Mux(wave.load, Mux(lane.valid, preloaded, 0), held)",
        "held",
    ),
    Fault(
        "a new token inherits its slot's importance",
        EVICTOR,
        "Mux(lane.valid, preloaded, 0)",
        "preloaded",
    ),
    Fault(
        "the minimum of one head remains for the next",
        EVICTOR,
        "victim.found & ~wave.last",
        "victim.found",
    ),
    Fault(
        "the tile count of one head remains for the next",
        EVICTOR,
        "self.tile.eq(Mux(wave.last, 0, self.tile + 1))",
        "self.tile.eq(self.tile + 1)",
    ),
    Fault(
        "scores are compared without sign",
        EVICTOR,
        "z.eq(~above.importance)",
        "z.eq(~above.importance.as_unsigned())",
    ),
    Fault(
        "a clamped score counts as smaller than the lowest there is",
        EVICTOR,
        "difference[len(total)] & ~lowest",
        "difference[len(total)]",
    ),
    Fault(
        "one bit too few is dropped", EVICTOR, "lane.score >> p.shift", "lane.score >> p.shift - 1"
    ),
    Fault(
        "the column takes scores of no wave",
        EVICTOR,
        "        with m.If(self.strobe_in):\n            m.d.sync += held.eq(importance)",
        "        m.d.sync += held.eq(importance)",
    ),
    Fault(
        "waves that do not rank reach the search",
        EVICTOR,
        "ranked = strobe & wave.rank",
        "ranked = strobe",
    ),
    Fault(
        "more victims are let in than there is room for",
        EVICTOR,
        "self.waves.ready.eq(room | ~ends)",
        "self.waves.ready.eq(1)",
    ),
    Fault(
        "a victim that nobody took is overwritten",
        "hdl/stream/fall_through_fifo.py",
        "(self.waiting == i + leaves)",
        "(i == 0)",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "systolic_evictor", "tiny")
    assert proof_finds(copy, PROOF)
