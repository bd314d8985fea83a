"""The row buffer outputs each slice with its row's result, in order, within its capacity."""

import random
from collections import deque
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream
from amaranth.sim import Simulator

from hdl.memory.row_buffer import RowBuffer, take_slices


class TakenSlices(Elaboratable):
    """A stream into a row buffer; a row's result follows its last slice by one cycle."""

    def __init__(self) -> None:
        self.buffer = RowBuffer(data_shape=8, result_shape=5, depth=6, rows=2)
        self.slices = stream.Signature(data.StructLayout({"values": 8, "last": 1})).create()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = self.buffer
        taken = take_slices(m, self.buffer, self.slices)
        ended = Signal()
        m.d.sync += ended.eq(taken & self.slices.payload.last)
        m.d.comb += self.buffer.results.valid.eq(ended)
        return m


def test_slices_are_taken_from_a_stream_while_there_is_room() -> None:
    """Slices keep their order although the stream is stalled when there is no room."""
    unit, rng = TakenSlices(), random.Random(3)
    given: list[int] = []
    left: list[int] = []
    refused = 0

    async def bench(ctx: Any) -> None:
        nonlocal refused
        waiting, shown = 0, False
        for cycle in range(2000):
            if not waiting and rng.random() < 0.8:
                waiting = rng.randrange(1, 256)
                ctx.set(unit.slices.payload.values, waiting)
                ctx.set(unit.slices.payload.last, rng.random() < 0.5 or cycle % 3 == 0)
            ctx.set(unit.slices.valid, bool(waiting))
            moves = rng.random() < 0.4
            ctx.set(unit.buffer.enable, moves)
            if moves:
                left.extend([ctx.get(unit.buffer.data)] * shown)
                shown = bool(ctx.get(unit.buffer.valid))
            if waiting and ctx.get(unit.slices.ready):
                given.append(waiting)
                waiting = 0
            refused += bool(waiting)
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert refused > 100
    assert len(left) > 300
    assert left == given[: len(left)]


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize(("depth", "rows", "late"), [(6, 2, 0), (9, 3, 2), (16, 1, 3)])
def test_slices_are_output_with_their_rows_result(
    depth: int, rows: int, late: int, *, tagged: bool
) -> None:
    """A slice is written `late` cycles after it is taken; its row's result arrives later."""
    unit = RowBuffer(
        data_shape=8, tag_shape=3 if tagged else None, result_shape=5, depth=depth, rows=rows
    )
    rng = random.Random(depth)
    sent: list[tuple[int, int, int]] = []
    given: list[tuple[int, int, int]] = []
    tags: list[int] = []
    data: list[int] = []
    expected_tags: list[int] = []
    expected_data: list[int] = []
    length, row = rng.randint(1, min(depth, 5)), 0
    writes: deque[tuple[int, int, int, int]] = deque()
    results: deque[tuple[int, int]] = deque()
    full = 0

    async def bench(ctx: Any) -> None:
        nonlocal length, row, full
        shown = False
        for cycle in range(3000):
            takes = ctx.get(unit.room) and rng.random() < (0.9, 0.3)[cycle // 200 % 2]
            full += not ctx.get(unit.room)
            length -= takes
            last = takes and length == 0
            ctx.set(unit.take, takes)
            ctx.set(unit.take_last, last)
            if takes:
                item = rng.randrange(256), rng.randrange(8), row % 32
                sent.append((item[0], item[2], int(last)))
                expected_tags.append(item[1])
                expected_data.append(item[0])
                writes.append((cycle + late, item[0], item[1], int(last)))
                if last:
                    results.append((cycle + late + rng.randint(1, 9), row % 32))
                    length, row = rng.randint(1, min(depth, 5)), row + 1
            due = bool(writes) and writes[0][0] <= cycle
            ctx.set(unit.write.strobe, due)
            if due:
                _when, word, tag, ends = writes.popleft()
                ctx.set(unit.write.data, word)
                ctx.set(unit.write.last, ends)
                if tagged:
                    ctx.set(unit.write.tag, tag)
            arrives = bool(results) and results[0][0] <= cycle
            ctx.set(unit.results.valid, arrives)
            if arrives:
                assert ctx.get(unit.results.ready)
                ctx.set(unit.results.payload, results.popleft()[1])
            moves = rng.random() < (0.9, 0.2)[cycle // 150 % 2]
            ctx.set(unit.enable, moves)
            if moves:
                # The data of the slice whose tag was output one enabled cycle before.
                if shown:
                    data.append(ctx.get(unit.data))
                shown = bool(ctx.get(unit.valid))
                if shown:
                    given.append((0, ctx.get(unit.result), ctx.get(unit.last)))
                    if tagged:
                        tags.append(ctx.get(unit.tag))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(given) > 300
    assert full > 100
    assert [one[1:] for one in given] == [one[1:] for one in sent[: len(given)]]
    assert data == expected_data[: len(data)]
    assert len(data) >= len(given) - 1
    if tagged:
        assert tags == expected_tags[: len(tags)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"depth": 1}, "depth must be an integer from 2 to 4096, not 1"),
        ({"rows": 17}, "rows must be an integer from 1 to 16, not 17"),
    ],
)
def test_rejects_numbers_out_of_range(changed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowBuffer(**{"data_shape": 8, "result_shape": 5, "depth": 6, "rows": 2} | changed)
