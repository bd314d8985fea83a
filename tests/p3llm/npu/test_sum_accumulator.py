"""Sum accumulator: group sums times scales, against Python's integers."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.presets import PRESETS
from hdl.target import Target, writing_for
from tests.p3llm.npu.kept_sums import read_back, signed

TINY = PRESETS["tiny"]


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_exact(seed: int) -> None:
    """Sums of all magnitudes at random places: plain, scaled, added to stored sums."""
    p, rng = TINY, random.Random(seed)
    unit = SumAccumulator(parameters=p)
    scales = [rng.getrandbits(16 * p.elements) for _ in range(2 << unit.scale_bits)]
    places = 24
    totals: dict[int, list[int]] = {}
    groups: set[int] = set()
    commands, before = [], [-1, -1]
    for _ in range(300):
        place = rng.randrange(places)
        # Places in flight must not be read: a round's sums have places of their own.
        valid = place not in before and rng.random() < 0.8
        # Sums without scales are complete: only groups are followed by further ones.
        more = place in groups and rng.random() < 0.7
        commands.append(
            {
                "valid": valid,
                "weighted": more or rng.random() < 0.7,
                "more": more,
                "place": place,
                "scales": rng.randrange(len(scales)),
                "part": rng.randrange(4),
                "sums": [rng.getrandbits(32) >> rng.randrange(32) for _ in range(p.result)],
            }
        )
        before = [before[1], place if valid else -1]
        if not valid:
            continue
        now = commands[-1]
        groups = groups | {place} if now["weighted"] else groups - {place}
        old = totals.get(place, [0] * p.result) if more else [0] * p.result
        factors = [
            scales[now["scales"]] >> 8 * (now["part"] * p.result + lane) & 255
            for lane in range(p.result)
        ]
        totals[place] = [
            old[lane] + signed(now["sums"][lane], 32) * (factors[lane] if now["weighted"] else 1)
            for lane in range(p.result)
        ]
    got: dict[int, list[int]] = {}

    async def bench(ctx) -> None:
        ctx.set(unit.scales_write, 1)
        for number, column in enumerate(scales):
            ctx.set(unit.scales_address, number)
            ctx.set(unit.result, column)
            await ctx.tick()
        ctx.set(unit.scales_write, 0)
        for now in [*commands, None, None]:
            ctx.set(unit.coming.valid, bool(now and now["valid"]))
            if now:
                for name in ("weighted", "more", "place", "scales", "part"):
                    ctx.set(getattr(unit.coming, name), now[name])
            await ctx.tick()
            if now:
                # The result arrives one cycle after its tag; other cycles have random data.
                word = sum(one << 32 * lane for lane, one in enumerate(now["sums"]))
                ctx.set(unit.result, word)
        got.update(await read_back(ctx, unit, totals))

    # The gates of its multipliers and sums are held equal in tests of their own.
    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert got == totals
