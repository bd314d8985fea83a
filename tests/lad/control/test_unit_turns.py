"""A grant of a tile's vector units is for one task or row, and lasts until its last product."""

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.lad.control.unit_pool import Turn
from hdl.lad.control.unit_turns import UnitTurns

CYCLES = 4000


class Work:
    """A module that accepts the next item while the products of the last one are in flight."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.left = 0
        self.ready = False

    def step(self, accepted: bool) -> None:
        """Pass a cycle, in which an item may have been accepted."""
        self.left = self.rng.randint(2, 6) if accepted else max(self.left - 1, 0)
        self.ready = self.left < 3 and self.rng.random() < 0.7


@pytest.mark.parametrize("seed", range(3))
def test_a_grant_is_for_one_item(seed: int) -> None:
    rng = random.Random(seed)
    unit = UnitTurns(parameters=entry_named("lad_tile").parameters("tiny"))
    linear, function = Work(rng), Work(rng)
    counts = {Turn.LINEAR: 0, Turn.FUNCTION: 0}

    async def bench(context: Any) -> None:
        used = (
            (Turn.LINEAR, linear, unit.tasks, unit.granted_tasks, unit.linear_busy),
            (Turn.FUNCTION, function, unit.vectors, unit.granted_vectors, unit.function_busy),
        )
        accepted_in_grant = 0
        turn = Turn.ATTENTION
        for _cycle in range(CYCLES):
            context.set(unit.idle, rng.random() < 0.6)
            context.set(unit.offered, rng.random() < 0.2)
            for _turn, work, source, sink, busy in used:
                # A valid item is held until it is accepted.
                held = context.get(source.valid) and not moved[source]
                context.set(source.valid, held or rng.random() < 0.4)
                context.set(sink.ready, work.ready)
                context.set(busy, work.left > 0)
            last, turn = turn, Turn(context.get(unit.turn))
            accepted_in_grant = 0 if turn != last else accepted_in_grant
            for own, work, source, sink, _busy in used:
                moved[source] = bool(context.get(source.valid) and context.get(source.ready))
                assert moved[source] == bool(context.get(sink.valid) and work.ready)
                assert turn == own or not (work.left or moved[source]), "products have the units"
                if moved[source]:
                    counts[own] += 1
                    accepted_in_grant += own == Turn.LINEAR
                    assert accepted_in_grant <= 1, "a grant is for one task"
            assert not context.get(unit.may_begin) or turn == Turn.ATTENTION
            await context.tick()
            for _own, work, source, _sink, _busy in used:
                work.step(moved[source])

    moved = {unit.tasks: False, unit.vectors: False}
    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert min(counts.values()) > CYCLES // 80, counts
