"""Scores of FP16 queries and keys: bit-identical to the model, which is near the exact sum."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.float_values import codes, values
from golden.p3llm.npu.query_key_score import query_key_score
from hdl.p3llm.npu.query_key_score import QueryKeyScore
from hdl.p3llm.parameters import P3llmParameters
from hdl.target import Target, writing_for
from tests.p3llm.test_small_layer import smallest


def found(p: P3llmParameters, queries: np.ndarray, keys: np.ndarray, gaps: np.ndarray) -> list[int]:
    """Return the bits of each score; slices arrive with gaps."""
    unit, given = QueryKeyScore(parameters=p), []
    slices = p.head_size // p.lanes

    async def drive(ctx) -> None:
        for number, (query, key) in enumerate(zip(queries, keys, strict=True)):
            for index in range(slices):
                part = slice(index * p.lanes, (index + 1) * p.lanes)
                ctx.set(unit.query, query[part].tolist())
                ctx.set(unit.key, key[part].tolist())
                ctx.set(unit.last, index == slices - 1)
                ctx.set(unit.strobe, 1)
                await ctx.tick()
                ctx.set(unit.strobe, 0)
                # Data without a strobe are ignored.
                ctx.set(unit.last, 1)
                await ctx.tick().repeat(int(gaps[number, index])) if gaps[number, index] else None
        await ctx.tick().repeat(64)

    async def watch(ctx) -> None:
        async for _clock, _reset, valid, score in ctx.tick().sample(
            unit.valid, unit.score.as_value()
        ):
            if valid:
                given.append(score)

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
    assert got == query_key_score(queries, keys, p).view(np.uint32).tolist()


@pytest.mark.parametrize("preset_lanes", [4, 16])
def test_a_score_is_near_the_exact_one(preset_lanes: int) -> None:
    """Compared with fractions: within the roundings of a tree of additions and one product."""
    p, rng = replace(P3llmParameters(), lanes=max(8, preset_lanes)), np.random.default_rng(1)
    queries, keys = (codes(rng.normal(size=(20, p.head_size))) for _ in "qk")
    scores = query_key_score(queries, keys, p)
    for query, key, score in zip(values(queries), values(keys), scores, strict=True):
        terms = [Fraction(a) * Fraction(b) for a, b in zip(query, key, strict=True)]
        exact = float(sum(terms)) * np.log2(np.e) / np.sqrt(p.head_size)
        bound = float(sum(map(abs, terms))) * 9 * 2.0**-24
        assert abs(float(score) - exact) <= bound
