"""The largest of sums in binary32, against the numbers' own order."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.p3llm.p3llm import ordered
from hdl.p3llm.npu.largest_sum import LargestSum
from hdl.p3llm.parameters import P3llmParameters
from tests.p3llm.test_small_layer import smallest


def found(p: P3llmParameters, texts: list[np.ndarray]) -> list[tuple[int, int]]:
    """Return token and sum of each text's sums, which come in two pieces.

    Those of two requests come piece by piece in turns.
    """
    unit, given = LargestSum(parameters=p), []

    def of(ctx, request: int) -> None:
        if p.together > 1:
            ctx.set(unit.request, request)

    async def piece(ctx, slices: list[list[int]]) -> None:
        for number, one in enumerate(slices):
            last = number == len(slices) - 1
            ctx.set(unit.strobe, 1)
            ctx.set(unit.last, last)
            ctx.set(unit.values, one)
            await ctx.tick()
            ctx.set(unit.strobe, 0)
            # A piece ends when its last slice counts, some cycles later.
            waits = 0
            while last and not ctx.get(unit.compared):
                waits += 1
                assert waits < 9
                await ctx.tick()

    async def bench(ctx) -> None:
        for first in range(0, len(texts), p.together):
            slices = [
                sums.view(np.uint32).reshape(-1, p.lanes).tolist()
                for sums in texts[first : first + p.together]
            ]
            for part in (slice(1), slice(1, None)):
                for request, own in enumerate(slices):
                    of(ctx, request)
                    await piece(ctx, own[part])
            for request in range(len(slices)):
                of(ctx, request)
                await ctx.delay(0)
                given.append((ctx.get(unit.token), ctx.get(unit.sum)))
                ctx.set(unit.clear, 1)
                await ctx.tick()
                ctx.set(unit.clear, 0)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return given


@pytest.mark.parametrize(("lanes", "batch"), [(2, 1), (4, 1), (2, 2)])
def test_the_first_of_the_largest_sums_is_found(lanes: int, batch: int) -> None:
    """Of both signs, of one, equal ones, zeros of both signs; of one request and of two."""
    p = smallest(1, lanes=lanes, vocabulary=29, batch=batch)
    rng = np.random.default_rng(lanes)
    texts = [rng.normal(size=p.filled_vocabulary) for _ in range(4)]
    texts += [-np.abs(text) for text in texts]
    texts += [rng.integers(-3, 0, p.filled_vocabulary) for _ in range(4)]
    texts += [np.where(rng.random(p.filled_vocabulary) < 0.5, 0.0, -0.0), np.full(32, -0.0)[:28]]
    sums = [text.astype(np.float32) for text in texts]
    for text, (token, bits) in zip(sums, found(p, sums), strict=True):
        assert token == ordered(text).argmax()
        assert bits == text.view(np.uint32)[token]
        # The numbers' own order, but that a zero may be either.
        assert text[token] == text.max() and not (text[:token] > text[token]).any()
