"""Each fault in what holds VEDA together is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

SCHEDULER = "hdl/veda/scheduler.py"
TABLE = "hdl/veda/slot_table.py"
FEEDER = "hdl/veda/operand_feeder.py"
SOFTMAX = "hdl/veda/lane_softmax.py"
SEQUENCER = "hdl/veda/layer_sequencer.py"
COUNTER = "hdl/veda/linear_counter.py"
RESULTS = "hdl/veda/linear_results.py"
RESIDUAL = "hdl/veda/residual_stream.py"
REPLAY = "hdl/veda/replay_buffer.py"
WEIGHTS = "hdl/veda/weight_buffer.py"
LINKS = "hdl/veda/stream_links.py"
FAULTS = [
    Fault(
        "a pass is replaced before it is taken",
        LINKS,
        "source.ready.eq(~sink.valid | sink.ready)",
        "source.ready.eq(1)",
    ),
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
        "*self._address(channel, address, task, slot, value, kv_head)",
        "*self._address(channel, address, task, slot, value & 0, kv_head)",
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
        "self._address(channel, address, task, first_slot, outer, kv_head)",
        "self._address(channel, address, task, task.slot, outer, kv_head)",
    ),
    Fault(
        "the first head's keys serve all heads of a lane",
        SCHEDULER,
        "kv_head = Value.cast(Array(heads)[turn])",
        "kv_head = Const(heads[0], 8)",
    ),
    Fault(
        "tokens vote that may not",
        FEEDER,
        "opens, votes = scores & begins, outputs & header.vote",
        "opens, votes = scores & begins, outputs",
    ),
    Fault(
        "each probability begins a sum of its own",
        FEEDER,
        "first.eq(Mux(rows | sums, counter.first, scores | begins))",
        "first.eq(Mux(rows | sums, counter.first, 1))",
    ),
    Fault(
        "a head keeps the query of the one before",
        FEEDER,
        "operand.load_vector.eq(load)",
        "operand.load_vector.eq(load & sums)",
    ),
    Fault(
        "all lanes are given the first lane's score",
        SOFTMAX,
        "lane.scores.payload.value.eq(self.scores.payload[index])",
        "lane.scores.payload.value.eq(self.scores.payload[0])",
    ),
    Fault(
        "every matrix begins with its layer's first line",
        SEQUENCER,
        "line += p.beats.get(kind, 0)",
        "line += 0",
    ),
    Fault(
        "all layers have the first one's weights",
        SEQUENCER,
        "address.layer.eq(task.layer),",
        "",
    ),
    Fault(
        "every token is turned as if it were the first",
        SEQUENCER,
        "Cat(task.position, part)",
        "Cat(task.position & 0, part)",
    ),
    Fault(
        "the last block of outputs is as large as the others",
        COUNTER,
        "part_ends.eq(output == Mux(final, left, block) - 1)",
        "part_ends.eq(output == block - 1)",
    ),
    Fault(
        "a block's outputs all meet the vector's first slice",
        COUNTER,
        "self.load.eq(self.inner & (output == 0))",
        "self.load.eq(self.inner & (output == 0) & (part == 0))",
    ),
    Fault(
        "the last projection takes as many slices as the heads have",
        FEEDER,
        "counter.feed_forward.eq(header.kind == PassKind.DOWN)",
        "counter.feed_forward.eq(0)",
    ),
    Fault(
        "a matrix is done before its last sum is added",
        FEEDER,
        "self.passes.ready.eq(Mux(sums, self.finished, moves & ends))",
        "self.passes.ready.eq(moves & ends)",
    ),
    Fault(
        "gates and ups are turned like queries",
        FEEDER,
        "m.d.comb += kind.eq(RowKind.GATED)",
        "m.d.comb += kind.eq(RowKind.PROJECTED)",
    ),
    Fault(
        "angles are taken for a row of outputs",
        FEEDER,
        "with m.If(moves & ~inner & ~angles & last):",
        "with m.If(moves & ~inner & last):",
    ),
    Fault(
        "values are turned like keys",
        RESULTS,
        "is_value.eq((index >= p.kv_rounds) & (index < 2 * p.kv_rounds))",
        "is_value.eq(0)",
    ),
    Fault(
        "values overtake keys that are still being turned",
        RESULTS,
        "return turned.rows, under_way != 0",
        "return turned.rows, under_way > 3",
    ),
    Fault(
        "all pairs of a head are turned by the same angle",
        RESULTS,
        "Value.cast(angles).eq(Value.cast(angles).rotate_right(32))",
        "angles.eq(angles)",
    ),
    Fault(
        "behind a state that leaves no other enters",
        RESIDUAL,
        "entering.eq(leaves),",
        "entering.eq(0),",
    ),
    Fault(
        "a vector's second round begins with its second item",
        REPLAY,
        "place.eq(Mux(complete & (place + 1 == whole), 0, place + 1))",
        "place.eq(Mux(complete & (place + 1 == whole), 1, place + 1))",
    ),
    Fault(
        "a line is forgotten before the block's last token has met it",
        WEIGHTS,
        "frees.eq(handed_over & ~self.keep)",
        "frees.eq(handed_over)",
    ),
    Fault(
        "the next segment's lines come before the block's last token has met these",
        COUNTER,
        "self.again.eq(segment_ends & self.keep)",
        "self.again.eq(0)",
    ),
    Fault(
        "all tokens of a block are written into one slot",
        SCHEDULER,
        "slot.eq(Mux(token_ends, task.slot, later_slot))",
        "slot.eq(task.slot)",
    ),
    Fault(
        "all tokens of a block attend to as many as the first",
        SCHEDULER,
        "length.eq(later_length),",
        "length.eq(task.length),",
    ),
    Fault(
        "every token of a block finds victims",
        SCHEDULER,
        "step.evictions.eq(Mux(token_ends, task.evictions, 0))",
        "step.evictions.eq(task.evictions)",
    ),
    Fault(
        "a block's queries are read in the order in which they come",
        SCHEDULER,
        "place.eq(place + p.rounds)",
        "place.eq(place + 1)",
    ),
    Fault(
        "a block's activated elements stand in the order in which they come",
        RESULTS,
        "place.eq(place + 2 * p.activated_slices - (p.copies - 1)),",
        "place.eq(place + 1),",
    ),
    Fault(
        "a block takes as many slots as one token",
        TABLE,
        "reaches.eq(entry.length + instruction.last_token + ~takes_victim)",
        "reaches.eq(entry.length + ~takes_victim)",
    ),
    Fault(
        "the norm's vectors are used before all of a block are there",
        "hdl/veda/veda.py",
        "normalised.payload.last.eq(sink.payload.last & finals.sink.payload)",
        "normalised.payload.last.eq(sink.payload.last)",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), "veda", "tiny")
