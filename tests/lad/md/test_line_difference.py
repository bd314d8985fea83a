"""Differences of lines' coefficients: every pair of every table, against numpy's subtraction."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.lad.interval_table import EIGHT, FIVE
from hdl.lad.md.line_difference import LineDifference


@pytest.mark.parametrize("codes", [FIVE.a, FIVE.b, EIGHT.a, EIGHT.b])
@pytest.mark.parametrize("stages", [1, 3])
def test_every_pair_is_subtracted(codes: tuple[int, ...], stages: int) -> None:
    """One pair per cycle; every few cycles a stall, with any values at the inputs."""
    unit = LineDifference(codes=codes, stages=stages)
    line = np.array(codes, np.uint16).view(np.float16)
    first, second = (side.reshape(-1) for side in np.indices((len(line), len(line))))
    expected = (line[first] - line[second]).view(np.uint16)
    got: list[int] = []

    async def bench(context: Any) -> None:
        pairs = iter(zip(first.tolist(), second.tolist(), strict=True))
        moves = cycle = 0
        while len(got) < len(expected):
            context.set(unit.enable, cycle % 5 != 3)
            pair = (0, 1) if cycle % 5 == 3 else next(pairs, (0, 1))
            context.set(unit.interval, pair[0])
            context.set(unit.mode, pair[1])
            await context.tick()
            moves += cycle % 5 != 3
            cycle += 1
            if cycle % 5 != 4 and moves > stages:
                got.append(context.get(unit.result))

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert got == expected.tolist()
