"""The argmax of each request: pieces of logits of two requests, then their predictions."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.sim import Simulator

from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY32
from hdl.nonlinear.argmax import Argmax
from hdl.p3llm.instructions import NpuOperation, npu_instruction
from hdl.p3llm.npu.datapath_links import Stores
from hdl.p3llm.npu.datapaths import Datapaths
from hdl.p3llm.npu.result_scaler import ResultScalerParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.presets import PRESETS


@dataclass(frozen=True)
class ArgmaxOnly(Datapaths):
    """The datapaths of the argmax, with logits from the test in place of the scaler."""

    def _scaled(self) -> None:
        """Leave the scaler's results to the test."""


def vector_unit(p: P3llmParameters) -> Any:
    """Return the members of the vector unit that the argmax uses."""
    layout = ResultScalerParameters(lanes=p.lanes).result_layout
    return SimpleNamespace(
        parameters=p,
        argmax=Argmax(parameters=p.argmax),
        held=Signal(npu_instruction(p)),
        starts=Signal(),
        scaler=SimpleNamespace(results=stream.Signature(layout).create()),
        predictions=stream.Signature(p.prediction_layout).create(),
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_predictions_are_those_of_each_request(batch: int) -> None:
    p = replace(PRESETS["tiny"], batch=batch)
    unit, finished, running = vector_unit(p), Signal(), Signal()
    m = Module()
    m.submodules.argmax = unit.argmax
    stores = Stores(numbers=Signal(), codes=Signal())
    datapaths = ArgmaxOnly(m, unit, stores, finished, Signal(), running)
    datapaths.mark_rows()
    with m.Switch(unit.held.operation):
        for operation in (NpuOperation.COMPARE, NpuOperation.PREDICT):
            with m.Case(operation):
                datapaths.table[operation]()
    rng = np.random.default_rng(batch)
    expected, found = [], []

    async def begin(ctx: Any, operation: NpuOperation, request: int) -> None:
        ctx.set(unit.held.operation, operation)
        ctx.set(unit.held.scalar, request)
        ctx.set(unit.starts, 1)
        await ctx.tick()
        ctx.set(unit.starts, 0)
        ctx.set(running, 1)

    async def compare(ctx: Any, slices: np.ndarray) -> None:
        results = unit.scaler.results
        for number, values in enumerate(slices):
            last = number == len(slices) - 1
            ctx.set(results.valid, 1)
            ctx.set(results.payload["values"], values.tolist())
            ctx.set(results.payload.last, last)
            assert ctx.get(finished) == last
            await ctx.tick()
            ctx.set(results.valid, 0)
        ctx.set(running, 0)

    async def predict(ctx: Any) -> None:
        late = int(rng.integers(12))
        for cycle in range(30):
            ctx.set(unit.predictions.ready, cycle >= late)
            if ctx.get(finished):
                break
            await ctx.tick()
        assert ctx.get(finished), "no prediction"
        payload = unit.predictions.payload
        found.append((ctx.get(payload.token), ctx.get(payload["sum"])))
        await ctx.tick()
        ctx.set(unit.predictions.ready, 0)
        ctx.set(running, 0)

    async def bench(ctx: Any) -> None:
        for _ in range(12):
            numbers = rng.choice([-1.5, -0.0, 0.0, np.nan, 1.0, 2.0], (3, p.together, 2, p.lanes))
            codes = numbers.astype(np.float32).view(np.uint32)
            for piece in codes:
                for request in range(p.together):
                    await begin(ctx, NpuOperation.COMPARE, request)
                    await compare(ctx, piece[request])
            for request in range(p.together):
                await begin(ctx, NpuOperation.PREDICT, request)
                await predict(ctx)
                expected.append(argmax(BINARY32, codes[:, request].reshape(-1)))

    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == expected
