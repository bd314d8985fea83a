"""A delay line delays a value of any shape by 0 to n cycles, and holds it while disabled."""

import random
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.sim import Simulator

from hdl.arith.delay_line import delay_line

PAIR = data.StructLayout({"x": 3, "y": 5})


def test_tap_n_is_delayed_by_n_cycles() -> None:
    m: Any = Module()
    value, enable = Signal(PAIR), Signal()
    line = delay_line(m, value, 3, name="line", enable=enable)
    rng = random.Random(1)
    past: list[Any] = []

    async def bench(ctx: Any) -> None:
        for _ in range(200):
            now: Any = {"x": rng.randrange(8), "y": rng.randrange(32)}
            moves = rng.randrange(2)
            ctx.set(value, now)
            ctx.set(enable, moves)
            for tap, before in zip(line, [now, *past[::-1]], strict=False):
                assert ctx.get(tap) == PAIR.const(before)
            past.extend([now] * moves)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(line) == 4
    assert len(past) > 50


def test_only_valid_bits_are_reset() -> None:
    m = Module()
    value = Signal(2)
    assert delay_line(m, value, 0, name="none") == (value,)
    assert delay_line(m, value, 1, name="data")[-1].reset_less
    assert not delay_line(m, value, 1, name="valid", reset=True)[-1].reset_less
