"""Number of scores: as many probabilities as the units multiply, for any position."""

from dataclasses import replace
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.operation_control import OperationControl
from hdl.p3llm.pim.dot_product import PE_LANES

PRESETS = entry_named("p3llm").presets


@pytest.mark.parametrize(("preset", "lanes"), [("tiny", 2), ("tiny", 4), ("smollm2", 16)])
def test_every_column_of_values_has_its_inputs(preset: str, lanes: int) -> None:
    p = replace(PRESETS[preset], lanes=lanes)
    unit = OperationControl(parameters=p)
    found: list[int] = []

    async def bench(ctx: Any) -> None:
        ctx.set(unit.instructions.payload.operation, NpuOperation.SCORES)
        ctx.set(unit.instructions.valid, 1)
        ctx.set(unit.fetched, 1)
        ctx.set(unit.finished, 1)
        for position in range(p.slots):
            ctx.set(unit.position, position)
            while not ctx.get(unit.running):
                await ctx.tick()
            found.append(ctx.get(unit.count) * p.lanes)
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(found) == p.slots
    for position, scores in enumerate(found):
        # A column has the values of PE_LANES tokens, of which the last ones may not exist.
        assert scores >= PE_LANES * (position // PE_LANES + 1)
        assert scores < position + 1 + max(p.lanes, PE_LANES)
