"""Cycles of the vector unit for keys that the NPU rotates."""

from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.p3llm.parameters import P3llmParameters
from hdl.target import Target, writing_for
from tests.p3llm.npu.test_key_reader import parameters

PRESETS = entry_named("p3llm").presets


@pytest.mark.parametrize(
    "p",
    [parameters(4), replace(PRESETS["tiny"], lanes=2)],
    ids=lambda p: f"{p.head_size // p.lanes} slices of {p.lanes}",
)
def test_a_key_takes_its_slices(p: P3llmParameters) -> None:
    """The length adds only cycles of slices of keys, scales and probabilities."""
    p = replace(p, pre_rope=True)
    unit, size = VectorUnit(parameters=p), p.head_size // p.lanes
    counted: list[int] = []

    async def bench(ctx) -> None:
        for tokens in (lengths := [16, 48]):
            ctx.set(unit.position, tokens - 1)
            for operation in (NpuOperation.QUERY, NpuOperation.SCORES):
                given = {"operation": operation.value, "count": size}
                ctx.set(unit.instructions.payload, given)
                ctx.set(unit.instructions.valid, 1)
                await ctx.tick()
                ctx.set(unit.instructions.valid, 0)
                cycles = 0
                while not ctx.get(unit.instructions.ready):
                    cycles += 1
                    assert cycles < 999
                    await ctx.tick()
            counted.append(cycles)
        more = lengths[1] - lengths[0]
        # Scales of values precede, probabilities follow; scores are in parallel with the keys.
        assert counted[1] - counted[0] == more * size + 2 * (more // p.lanes)

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
