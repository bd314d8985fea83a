"""Total collector: totals assembled from parts, against Python's integers."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.npu.total_collector import TotalCollector
from tests.p3llm.npu.kept_sums import read_back, signed

PRESETS = entry_named("p3llm").presets

TINY = PRESETS["tiny"]
PLACES = 24


def simulate(unit: TotalCollector, bench: Callable[..., Any]) -> None:
    """Run a testbench."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("batch", [1, 2])
def test_totals_of_two_units_are_added(batch: int) -> None:
    """Modulo 2**48; the places of the first unit are not stored, and do not count as complete."""
    p, rng = replace(TINY, batch=batch), random.Random(batch)
    unit = TotalCollector(parameters=p)
    commands: list[tuple[dict[str, int], int]] = []
    totals: dict[int, list[int]] = {}
    completes: list[tuple[int, int]] = []
    for tile in range(8):
        for added, pump in product(range(2), range(batch)):
            drawn = [signed(rng.getrandbits(48), 48) >> rng.randrange(48) for _ in range(4)]
            tag = {"valid": 1, "wide": 1, "pump": pump, "part": 1 - added, "added": added}
            place = 2 * (tile + 8 * pump)
            above = sum((one >> 32 & 0xFFFF) << 16 * lane for lane, one in enumerate(drawn))
            commands.append(({**tag, "high": 1, "place": place, "upper": 0, "final": 0}, above))
            for half in range(2):
                mine = drawn[2 * half : 2 * half + 2]
                word = sum((one & 0xFFFFFFFF) << 32 * lane for lane, one in enumerate(mine))
                final = added and pump == 0
                own = {"high": 0, "place": place + half, "upper": half, "final": final}
                commands.append(({**tag, **own}, word))
                before = totals.get(place + half, [0, 0])
                sums = [signed((a + b) % 2**48, 48) for a, b in zip(before, mine, strict=True)]
                totals[place + half] = sums
                if final:
                    completes.append((len(commands), place + half + 1))
    got: dict[int, list[int]] = {}

    async def bench(ctx) -> None:
        ctx.set(unit.linear_runs, 1)
        for number, (tag, word) in enumerate([*commands, *[({"valid": 0}, 0)] * 3]):
            for name, value in tag.items():
                ctx.set(getattr(unit.next_tag, name), value)
            # Two registers after the tag, and that of `complete`.
            known = [place for count, place in completes if count <= number - 2]
            assert ctx.get(unit.complete) == (known[-1] if known else 0)
            await ctx.tick()
            ctx.set(unit.result, word)
        got.update(await read_back(ctx, unit, totals))

    simulate(unit, bench)
    assert got == totals


@pytest.mark.parametrize("seed", range(3))
def test_parts_become_totals(seed: int) -> None:
    """Totals of all magnitudes in three parts with gaps, interleaved with sums of 32 bits."""
    p, rng = TINY, random.Random(seed)
    unit = TotalCollector(parameters=p)
    totals: dict[int, list[int]] = {}
    commands: list[tuple[dict[str, int], int]] = []

    def append(word: int, **tag: int) -> None:
        commands.extend([({}, rng.getrandbits(64))] * (rng.random() < 0.3))
        commands.append(({"valid": 1, "upper": 0, "place": 0, "wide": 0, "high": 0, **tag}, word))

    for _ in range(60):
        place, wide = 2 * rng.randrange(PLACES // 2), rng.random() < 0.7
        width = 48 if wide else 32
        drawn = [signed(rng.getrandbits(width), width) >> rng.randrange(width) for _ in range(4)]
        if wide:
            above = sum((one >> 32 & 0xFFFF) << 16 * lane for lane, one in enumerate(drawn))
            # The high part itself is not stored.
            append(above, wide=1, high=1, place=place)
        for half in range(2):
            mine = drawn[2 * half : 2 * half + 2]
            word = sum((one & 0xFFFFFFFF) << 32 * lane for lane, one in enumerate(mine))
            append(word, wide=wide, place=place + half, upper=half)
            totals[place + half] = mine
    got: dict[int, list[int]] = {}

    async def bench(ctx) -> None:
        for tag, word in [*commands, ({}, 0), ({}, 0)]:
            ctx.set(unit.next_tag.valid, 0)
            for name, value in tag.items():
                ctx.set(getattr(unit.next_tag, name), value)
            await ctx.tick()
            # The result arrives one cycle after its tag.
            ctx.set(unit.result, word)
        got.update(await read_back(ctx, unit, totals))

    simulate(unit, bench)
    assert any(abs(one) >= 1 << 31 for mine in totals.values() for one in mine)
    assert got == totals
