"""A token's own score: bit-identical to the model, which is near the exact sum."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.float_values import codes, values
from golden.p3llm.npu.newest_score import newest_score, newest_share
from hdl.p3llm.npu.newest_score import NewestScore
from hdl.p3llm.parameters import P3llmParameters
from hdl.target import Target, writing_for
from tests.p3llm.test_small_layer import smallest


def found(
    p: P3llmParameters, queries: np.ndarray, keys: np.ndarray, gaps: np.ndarray
) -> list[tuple[int, int]]:
    """Return scalar and bits of each score; slices arrive with gaps."""
    unit, given = NewestScore(parameters=p), []
    slices = p.head_size // p.lanes

    async def drive(ctx) -> None:
        for number, (query, key) in enumerate(zip(queries, keys, strict=True)):
            for index in range(slices):
                part = slice(index * p.lanes, (index + 1) * p.lanes)
                ctx.set(unit.query, query[part].tolist())
                ctx.set(unit.key, key[part].tolist())
                ctx.set(unit.scalar, number % p.scalars)
                ctx.set(unit.last, index == slices - 1)
                ctx.set(unit.strobe, 1)
                await ctx.tick()
                ctx.set(unit.strobe, 0)
                # Data without a strobe are ignored.
                ctx.set(unit.last, 1)
                await ctx.tick().repeat(int(gaps[number, index])) if gaps[number, index] else None
        await ctx.tick().repeat(64)

    async def watch(ctx) -> None:
        async for _clock, _reset, valid, scalar, score in ctx.tick().sample(
            unit.scored.valid, unit.scored.scalar, unit.score.as_value()
        ):
            if valid:
                given.append((scalar, score))

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_process(watch)
    simulator.run()
    return given


@pytest.mark.parametrize(("lanes", "head_size"), [(2, 8), (4, 8), (4, 24)])
def test_a_score_is_equal_to_the_model(lanes: int, head_size: int) -> None:
    """Random heads back to back, with and without gaps, and heads with one nonzero element."""
    p, rng = smallest(1, lanes=lanes), np.random.default_rng(head_size)
    channel = replace(p.channel, unit=replace(p.channel.unit, steps=8))
    timing = replace(channel.timing, banks=16)
    p = replace(p, head_size=head_size, channel=replace(channel, timing=timing))
    size = (12, head_size)
    queries, keys = (codes(rng.normal(size=size) * 2.0 ** rng.integers(-9, 9)) for _ in "qk")
    keys[3] = 0
    keys[3, 1] = codes(1.5)
    # Subnormal numbers, and those whose sum cancels.
    keys[4] = rng.integers(0, 1 << 10, head_size)
    queries[5, ::2], queries[5, 1::2] = codes(60_000), codes(-60_000)
    keys[5] = codes(1)
    gaps = rng.integers(0, 3, (len(queries), head_size // lanes))
    gaps[:6] = 0
    got = found(p, queries, keys, gaps)
    expected = newest_score(queries, keys, p).view(np.uint32)
    assert got == [(number % p.scalars, int(bits)) for number, bits in enumerate(expected)]


@pytest.mark.parametrize("preset_lanes", [4, 16])
def test_a_score_is_near_the_exact_one(preset_lanes: int) -> None:
    """Compared with fractions: within the roundings of a tree of additions and one product."""
    p, rng = replace(P3llmParameters(), lanes=max(8, preset_lanes)), np.random.default_rng(1)
    queries, keys = (codes(rng.normal(size=(20, p.head_size))) for _ in "qk")
    scores = newest_score(queries, keys, p)
    for query, key, score in zip(values(queries), values(keys), scores, strict=True):
        terms = [Fraction(a) * Fraction(b) for a, b in zip(query, key, strict=True)]
        exact = float(sum(terms)) * np.log2(np.e) / np.sqrt(p.head_size)
        bound = float(sum(map(abs, terms))) * 9 * 2.0**-24
        assert abs(float(score) - exact) <= bound
    share = newest_share(codes(rng.random(20)), keys)
    assert share.dtype == np.float32 and share.shape == keys.shape


def test_a_share_is_exact() -> None:
    rng = np.random.default_rng(3)
    shares, vectors = codes(rng.integers(0, 1 << 16, 50) / 65536), codes(rng.normal(size=(50, 8)))
    got = newest_share(shares, vectors).astype(np.float64)
    assert (got == values(shares)[:, np.newaxis] * values(vectors)).all()
