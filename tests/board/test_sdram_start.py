"""The start sequence of an SDRAM at a Wishbone bus with random delays."""

import random
from itertools import pairwise
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.board.sdram_start import REGISTERS, SdramStart, start_writes

PAUSE = 50


def written(share: float) -> list[tuple[int, int, int]]:
    """Return the cycle, address and value of each write, of which a share of cycles is delayed."""
    unit: Any = SdramStart(pause=PAUSE)
    found, rng = list[tuple[int, int, int]](), random.Random(1)

    async def run(ctx: Any) -> None:
        for cycle in range(1500):
            acknowledged = ctx.get(unit.control.stb) and rng.random() >= share
            ctx.set(unit.control.ack, acknowledged)
            if acknowledged:
                found.append((cycle, ctx.get(unit.control.adr) * 4, ctx.get(unit.control.dat_w)))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run)
    simulator.run()
    return found


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_each_register_is_written_once_in_order(share: float) -> None:
    found = written(share)
    assert [(address, value) for _cycle, address, value in found] == [
        (REGISTERS[name], value) for name, value in start_writes()
    ]
    cycles = [cycle for cycle, _address, _value in found]
    assert cycles[1] - cycles[0] >= PAUSE
    # Two commands are at least tRFC apart: 66 ns, which is less than 2 cycles.
    assert min(later - cycle for cycle, later in pairwise(cycles)) > 2
