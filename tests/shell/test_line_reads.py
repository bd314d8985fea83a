"""Address generator of VEDA's reads: lines of the cache wait for earlier writes, others do not."""

from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.shell.line_reads import LineReads
from hdl.target import Target, writing_for
from hdl.veda.instructions import Space


@pytest.mark.parametrize("space", list(Space))
def test_only_lines_of_the_cache_wait_for_earlier_writes(space: Space) -> None:
    unit = LineReads(parameters=entry_named("veda_axi").parameters("tiny"))
    requested = []

    async def bench(context: Any) -> None:
        for written in (0, 1):
            context.set(unit.written, written)
            for channel in range(len(unit.ports)):
                context.set(unit.reads.payload.addresses[channel]["space"], space)
            context.set(unit.reads.valid, 1)
            await context.delay(1e-10)
            requested.append(context.get(unit.reads.ready))
            await context.tick()
            context.set(unit.reads.valid, 0)
            for port in unit.ports:
                assert context.get(port.requests.valid) == any(requested)

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert requested == [space != Space.CACHE, True]
