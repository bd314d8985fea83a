"""Each fault in what holds VEDA together is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

SCHEDULER = "hdl/veda/scheduler.py"
TABLE = "hdl/veda/slot_table.py"
FEEDER = "hdl/veda/operand_feeder.py"
SOFTMAX = "hdl/veda/lane_softmax.py"
FAULTS = [
    Fault(
        "a token is appended although a victim left it a slot",
        TABLE,
        "task.slot.eq(Mux(takes_victim, entry.slot, Mux(full, p.capacity - 1, entry.length)))",
        "task.slot.eq(Mux(full, p.capacity - 1, entry.length))",
    ),
    Fault(
        "a token does not wait for its layer's victim",
        TABLE,
        "known.eq(looked_up & (entry.state != SlotState.WAITING))",
        "known.eq(looked_up)",
    ),
    Fault(
        "a full cache counts as overflow although a victim left",
        TABLE,
        "full.eq(~takes_victim & (entry.length >= p.capacity))",
        "full.eq(entry.length >= p.capacity)",
    ),
    Fault(
        "values are written over the keys",
        SCHEDULER,
        "*self._address(channel, address, task, value)",
        "*self._address(channel, address, task, value & 0)",
    ),
    Fault(
        "a group's outputs begin with the layer's first head",
        SCHEDULER,
        "turn.eq(first)",
        "turn.eq(0)",
    ),
    Fault(
        "bursts begin at the token's slot",
        SCHEDULER,
        "burst.addresses[channel].slot.eq(0),",
        "",
    ),
    Fault(
        "the first head's keys serve all heads of a lane",
        SCHEDULER,
        "burst.addresses[channel].kv_head.eq(Array(heads)[turn])",
        "burst.addresses[channel].kv_head.eq(heads[0])",
    ),
    Fault(
        "tokens vote that may not",
        FEEDER,
        "votes = ~inner & header.vote",
        "votes = ~inner",
    ),
    Fault(
        "each probability begins a sum of its own",
        FEEDER,
        "operand.first.eq(inner | begins)",
        "operand.first.eq(1)",
    ),
    Fault(
        "a head keeps the query of the one before",
        FEEDER,
        "operand.load_vector.eq(opens)",
        "operand.load_vector.eq(0)",
    ),
    Fault(
        "all lanes are given the first lane's score",
        SOFTMAX,
        "lane.scores.payload.value.eq(self.scores.payload[index])",
        "lane.scores.payload.value.eq(self.scores.payload[0])",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), "veda", "tiny")
