"""Units with a clock enable: the states of the original unit, in the cycles with the enable."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from amaranth.hdl import Value
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.memory.row_buffer import RowBuffer
from hdl.nonlinear.softmax import Softmax, SoftmaxParameters
from hdl.p3llm.p3llm import P3llm
from hdl.shell.enabled import enabled
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.target import Target, writing_for
from hdl.unit import Unit

pytestmark = pytest.mark.depends("p3llm_axi")

UNITS: dict[type[Unit], dict[str, Any]] = {
    RegisterSlice: {"shape": 8},
    Fifo: {"shape": 8, "depth": 3},
    MemoryFifo: {"shape": 8, "depth": 4},
    Memory: {"depth": 4, "width": 6, "granularity": 3},
    RowBuffer: {"data_shape": 5, "tag_shape": 3, "result_shape": 4, "depth": 8, "rows": 2},
    Softmax: {"parameters": SoftmaxParameters(lanes=2, scores=4, rows=1)},
}

CYCLES = 400
"""Cycles of the original unit."""


def ports(unit: Any, flow: Any) -> Iterator[Value]:
    """Yield the inputs or the outputs of a unit, without its clock enable."""
    for path, member, value in unit.signature.flatten(unit):
        if member.flow is flow and path != ("clock_enable",):
            yield Value.cast(value)


def outputs(unit: Any, stalls: float) -> list[list[int]]:
    """Return all outputs in the enabled cycles, for random inputs."""
    inputs, stalled, found = random.Random(1), random.Random(2), list[list[int]]()

    async def bench(context: Any) -> None:
        while len(found) < CYCLES:
            stall = stalled.random() < stalls
            if stalls:
                context.set(unit.clock_enable, not stall)
            # The inputs of a disabled cycle have no effect.
            rng = stalled if stall else inputs
            for port in ports(unit, In):
                context.set(port, rng.getrandbits(len(port)) if len(port) else 0)
            if not stall:
                found.append([context.get(port) for port in ports(unit, Out)])
            await context.tick()

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    return found


@pytest.mark.parametrize("kind", UNITS, ids=lambda kind: kind.__name__)
def test_outputs_of_enabled_cycles_are_those_of_the_original_unit(kind: type[Unit]) -> None:
    expected = outputs(kind(**UNITS[kind]), 0)
    assert len({tuple(one) for one in expected}) > 4
    assert outputs(enabled(kind)(**UNITS[kind]), 0.5) == expected


def test_all_modules_of_p3llm_have_a_clock_enable() -> None:
    """Apart from memories, whose enables are gated outside them, and logic without registers."""
    p = entry_named("p3llm").parameters("tiny")
    emission = Emission(top=enabled(P3llm)(parameters=p), target=Target.FPGA)
    original = Emission(top=P3llm(parameters=p), target=Target.FPGA)
    for module in emission.modules:
        names = {port.name for port in module.ports}
        is_memory = module.identity[0] is Memory
        assert is_memory or "clk" not in names or "clock_enable" in names, module.name
    memories = [
        {module.name for module in one.modules if module.identity[0] is Memory}
        for one in (emission, original)
    ]
    assert memories[0] == memories[1] and memories[0]
    assert len(emission.modules) == len(original.modules)
