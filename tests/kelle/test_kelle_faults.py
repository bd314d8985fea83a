"""Each fault put between Kelle's units is found by the accelerator's simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

FETCH = "hdl/kelle/kv_fetch.py"
ISSUE = "hdl/kelle/vector_issue.py"
KELLE = "hdl/kelle/kelle.py"
ROUTER = "hdl/kelle/result_router.py"
SCHEDULER = "hdl/kelle/scheduler.py"
SOFTMAX = "hdl/kelle/softmax_rows.py"
CONTROL = "hdl/kelle/step_control.py"
STAGER = "hdl/kelle/block_stager.py"
FAULTS = [
    Fault(
        "recomputed tokens are read from the eDRAM",
        FETCH,
        "with m.Elif(is_victim | held.recomputed)",
        "with m.Elif(is_victim)",
    ),
    Fault(
        "a recomputed victim is not attended to in its last step",
        FETCH,
        "with m.Elif(is_victim | held.recomputed)",
        "with m.Elif(held.recomputed)",
    ),
    Fault(
        "the arriving token goes to the slot behind its own",
        FETCH,
        "(first + self.placement.slot) * edram",
        "(first + self.placement.slot + 1) * edram",
    ),
    Fault("a free slot is attended to", SOFTMAX, "+ row < residents", "+ row <= residents"),
    Fault("the arriving token counts twice", SOFTMAX, "Mux(own, 1, Cat", "Mux(own, 3, Cat"),
    Fault("probabilities are cut off instead of rounded", SOFTMAX, "[i] + 1) >> 1", "[i]) >> 1"),
    Fault(
        "blocks do not wait for recomputed keys",
        SCHEDULER,
        "Operation.SCORE: done.keys > head,",
        "Operation.SCORE: done.keys >= head,",
    ),
    Fault(
        "the attention does not wait for the softmax",
        SCHEDULER,
        "done.weighted > head",
        "done.weighted >= head",
    ),
    Fault(
        "a step does not wait for an input vector on its way",
        KELLE,
        "self.memory.scores.ready & (owed == 0)",
        "self.memory.scores.ready",
    ),
    Fault(
        "the victim's search ends with every tile",
        KELLE,
        "rank & scores & (header.part == p.tiles - 1)",
        "rank & scores",
    ),
    Fault(
        "the arriving token's own score counts for the first row of its tile",
        KELLE,
        "wave.row.eq(placement.slot[:row_bits])",
        "wave.row.eq(0)",
    ),
    Fault(
        "recomputed keys are turned by the arriving token's position",
        CONTROL,
        "new.position.eq(stored.position)",
        "new.position.eq(members[0].position)",
    ),
    Fault(
        "lower bytes count 256-fold",
        ISSUE,
        "vector.tag.step.high.eq(~projects & ~half)",
        "vector.tag.step.high.eq(~projects)",
    ),
    Fault(
        "a head is turned before its last slice is there",
        ROUTER,
        "whole.eq(valid & (header.part == p.slices - 1))",
        "whole.eq(valid & (header.part == 0))",
    ),
    Fault(
        "a block overwrites the one before it",
        STAGER,
        "self.room.eq(taken != BLOCKS)",
        "self.room.eq(1)",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.meaning for fault in FAULTS])
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), "kelle", "tiny")
