"""The crossing loses nothing and keeps the order, at any ratio of the clocks, also after resets."""

import random
from itertools import count
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.sim import Simulator

from hdl.emit import Emission
from hdl.shell.stream_crossing import StreamCrossing
from testbenches.lint import lint_unit
from testbenches.streams import PAUSES

PERIODS = [(10, 10), (10, 3), (3, 10), (10, 9), (7, 10), (10, 40)]
"""Periods of the clocks of design and memory, in nanoseconds."""


def crossed(
    *, inwards: bool, periods: tuple[int, int], pauses: tuple[str, str], items: int, resets: int = 0
) -> tuple[list[int], int]:
    """Send consecutive numbers; return those received since the last reset, and the cycles."""
    unit = StreamCrossing(shape=12, depth=8, inwards=inwards)
    top: Any = Module()
    sync: Any = ClockDomain("sync")
    memory: Any = ClockDomain("memory", reset_less=True)
    top.domains += [sync, memory]
    top.submodules.unit = unit
    top.d.comb += unit.other_clk.eq(ClockSignal("memory"))
    source, sink = ("memory", "sync") if inwards else ("sync", "memory")
    rng = random.Random(f"{inwards} {periods} {pauses}")
    received: list[int] = []
    state = {"sending": True, "cycles": 0}

    async def send(ctx: Any) -> None:
        pattern = PAUSES[pauses[0]](rng)
        for number in count():
            while next(pattern):
                await ctx.tick(source)
            ctx.set(unit.source.valid, 1)
            ctx.set(unit.source.payload, number % 4096)
            ready = False
            while not ready:
                # The values before the edge decide on the transfer.
                *_, ready = await ctx.tick(source).sample(unit.source.ready)
                state["cycles"] += bool(received)
            ctx.set(unit.source.valid, 0)

    async def receive(ctx: Any) -> None:
        pattern = PAUSES[pauses[1]](rng)
        while True:
            ctx.set(unit.sink.ready, not next(pattern))
            sampled = (unit.sink.valid, unit.sink.ready, unit.sink.payload)
            *_, valid, ready, payload = await ctx.tick(sink).sample(*sampled)
            if valid and ready:
                received.append(payload)

    async def reset(ctx: Any) -> None:
        for _ in range(resets):
            for _ in range(rng.randint(5, 60)):
                await ctx.tick("sync")
            ctx.set(sync.rst, 1)
            # Both sides must see the reset.
            for _ in range(4 * max(periods) // min(periods) + 4):
                await ctx.tick("sync")
            ctx.set(sync.rst, 0)
            received.clear()
        while len(received) < items:
            await ctx.tick("sync")

    simulator = Simulator(top)
    simulator.add_clock(periods[0] * 1e-9, domain="sync")
    simulator.add_clock(periods[1] * 1e-9, phase=0.37e-9, domain="memory")
    simulator.add_testbench(send, background=True)
    simulator.add_testbench(receive, background=True)
    simulator.add_testbench(reset)
    simulator.run()
    return received, state["cycles"]


@pytest.mark.parametrize("inwards", [False, True])
@pytest.mark.parametrize("periods", PERIODS)
@pytest.mark.parametrize("pauses", [("none", "none"), ("random", "bursty"), ("bursty", "random")])
def test_items_cross_in_order(
    inwards: bool, periods: tuple[int, int], pauses: tuple[str, str]
) -> None:
    received, _cycles = crossed(inwards=inwards, periods=periods, pauses=pauses, items=120)
    assert received == list(range(len(received)))


@pytest.mark.parametrize("inwards", [False, True])
@pytest.mark.parametrize("periods", PERIODS)
def test_items_after_a_reset_are_consecutive(inwards: bool, periods: tuple[int, int]) -> None:
    received, _cycles = crossed(
        inwards=inwards, periods=periods, pauses=("random", "random"), items=60, resets=5
    )
    assert received == list(range(received[0], received[0] + len(received)))


@pytest.mark.parametrize("inwards", [False, True])
def test_full_rate_at_nearly_equal_clocks(inwards: bool) -> None:
    """One item per cycle of the slower clock, which is that of the source."""
    periods = (9, 10) if inwards else (10, 9)
    received, cycles = crossed(inwards=inwards, periods=periods, pauses=("none", "none"), items=200)
    assert cycles <= len(received) + 8


@pytest.mark.parametrize("inwards", [False, True])
def test_verilog_is_clean_and_has_both_clocks(inwards: bool) -> None:
    unit = StreamCrossing(shape=5, depth=4, inwards=inwards)
    emission = Emission(top=unit, name="stream_crossing")
    assert not lint_unit("stream_crossing", emission)
    assert {"clk", "other_clk"} <= {port.name for port in emission.modules[-1].ports}


def test_rejects_an_illegal_depth() -> None:
    with pytest.raises(ValueError, match="depth must be a power of two between 4 and 64, not 6"):
        StreamCrossing(shape=8, depth=6, inwards=False)
