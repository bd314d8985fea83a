"""The argmax of each request: pieces of logits of two requests, then their predictions."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY32
from hdl.catalog import entry_named
from hdl.p3llm.npu.logit_argmax import LogitArgmax

PRESETS = entry_named("p3llm").presets


@pytest.mark.parametrize("batch", [1, 2])
def test_predictions_are_those_of_each_request(batch: int) -> None:
    p = replace(PRESETS["tiny"], batch=batch)
    unit = LogitArgmax(parameters=p)
    rng = np.random.default_rng(batch)
    expected, found = [], []

    async def compare(ctx, request: int, slices: np.ndarray) -> None:
        if p.in_flight > 1:
            ctx.set(unit.request, request)
        for values in slices:
            assert ctx.get(unit.logits.ready)
            ctx.set(unit.logits.valid, 1)
            ctx.set(unit.logits.payload["values"], values.tolist())
            await ctx.tick()
            ctx.set(unit.logits.valid, 0)

    async def predict(ctx, request: int) -> None:
        if p.in_flight > 1:
            ctx.set(unit.request, request)
        ctx.set(unit.predict, 1)
        await ctx.tick()
        ctx.set(unit.predict, 0)
        late = int(rng.integers(12))
        for cycle in range(30):
            ctx.set(unit.predictions.ready, cycle >= late)
            if cycle >= late and ctx.get(unit.predictions.valid):
                break
            await ctx.tick()
        assert ctx.get(unit.predictions.valid), "no prediction"
        payload = unit.predictions.payload
        found.append((ctx.get(payload.token), ctx.get(payload["sum"])))
        await ctx.tick()
        ctx.set(unit.predictions.ready, 0)

    async def bench(ctx) -> None:
        for _ in range(12):
            numbers = rng.choice([-1.5, -0.0, 0.0, np.nan, 1.0, 2.0], (3, p.in_flight, 2, p.lanes))
            codes = numbers.astype(np.float32).view(np.uint32)
            for piece in codes:
                for request in range(p.in_flight):
                    await compare(ctx, request, piece[request])
            for request in range(p.in_flight):
                await predict(ctx, request)
                expected.append(argmax(BINARY32, codes[:, request].reshape(-1)))

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == expected
