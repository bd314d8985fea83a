"""Cycles that a newest token in FP16 takes of the vector unit."""

from dataclasses import replace

from amaranth.sim import Simulator

from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.newest_vectors import NewestVectorUnit
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.target import Target, writing_for
from tests.p3llm.test_small_layer import smallest


def cycles(unit: VectorUnit, operations: list[NpuOperation], slices: int) -> list[int]:
    """Return the cycles of each operation until the next one starts."""
    given: list[int] = []

    async def bench(ctx) -> None:
        for operation in operations:
            ctx.set(unit.instructions.payload, {"operation": operation.value, "count": slices})
            ctx.set(unit.instructions.valid, 1)
            await ctx.tick()
            ctx.set(unit.instructions.valid, 0)
            given.append(1)
            while not ctx.get(unit.instructions.ready):
                assert given[-1] < 99
                given[-1] += 1
                await ctx.tick()

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return given


def test_a_value_is_weighted_and_added() -> None:
    """Fifteen cycles plus one per slice; four more if sums are added to the weighted value."""
    p, slices = smallest(1), 4
    weigh, head = NpuOperation.WEIGH, NpuOperation.HEAD
    (alone,) = cycles(VectorUnit(parameters=p), [head], slices)
    got = cycles(NewestVectorUnit(parameters=replace(p, residual=True)), [weigh, head], slices)
    assert got == [15 + slices, alone + 4]
