"""Streams of parts of the AXI shell in Amaranth's simulator."""

import random
from collections.abc import Sequence
from typing import Any

from amaranth.sim import Simulator

from hdl.target import Target, writing_for


def simulated(unit: Any, *benches: Any) -> None:
    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run_until(1e-5)


async def send(context: Any, items: Any, payloads: Sequence[int], rng: random.Random) -> None:
    """Offer payloads to a stream, after random pauses."""
    for payload in payloads:
        await context.tick().repeat(rng.randrange(1, 3))
        context.set(items.valid, 1)
        context.set(items.payload.as_value(), payload)
        await context.tick().until(items.ready)
        context.set(items.valid, 0)


async def take(context: Any, items: Any, rng: random.Random) -> int:
    """Take an item of a stream, after a random pause."""
    await context.tick().repeat(rng.randrange(1, 3))
    context.set(items.ready, 1)
    payload = (await context.tick().sample(items.payload.as_value()).until(items.valid))[0]
    context.set(items.ready, 0)
    return int(payload)
