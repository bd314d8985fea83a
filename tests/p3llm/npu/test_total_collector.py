"""Total collector: totals assembled from parts, against Python's integers."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.npu.total_collector import TotalCollector
from tests.p3llm.npu.kept_sums import read_back, signed

PRESETS = entry_named("p3llm").presets

TINY = PRESETS["tiny"]
PLACES = 24


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

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert any(abs(one) >= 1 << 31 for mine in totals.values() for one in mine)
    assert got == totals
