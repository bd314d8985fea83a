"""Streams of a unit in Amaranth's own simulator, for units that have no testbench of their own."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

Cycle = Callable[[Any], None]
"""What else a cycle sets, once all streams are driven."""


def run_streams(
    unit: Any,
    sources: Mapping[str, Sequence[int]],
    sinks: Mapping[str, int],
    *,
    seed: int,
    busy: float = 0.5,
    patience: int = 20_000,
    cycle: Cycle | None = None,
) -> dict[str, list[int]]:
    """Offer all payloads and take as many as are expected, both with random pauses.

    Parameters
    ----------
    unit : Any
        The unit.
    sources, sinks : Mapping
        Packed payloads of input streams, and how many an output stream must give; by name.
    seed : int
        Of the pauses.
    busy : float
        Share of the cycles without a pause; 1 for no pauses.
    patience : int
        Cycles after which it is stuck.
    cycle : Callable, optional
        Called in each cycle with the simulator's context.

    Returns
    -------
    dict[str, list[int]]
        What each sink gave, with whatever came in 20 cycles more.
    """
    rng = random.Random(seed)
    received: dict[str, list[int]] = {name: [] for name in sinks}
    left = {name: list(payloads) for name, payloads in sources.items()}

    async def bench(ctx: Any) -> None:
        offered = dict.fromkeys(sources, False)
        more = 20
        for _ in range(patience):
            for name, payloads in left.items():
                stream = getattr(unit, name)
                offered[name] = offered[name] or bool(payloads and rng.random() < busy)
                ctx.set(stream.valid, offered[name])
                if offered[name]:
                    ctx.set(Value.cast(stream.payload), payloads[0])
            for name in sinks:
                ctx.set(getattr(unit, name).ready, rng.random() < busy)
            if cycle is not None:
                cycle(ctx)
            for name, payloads in left.items():
                if offered[name] and ctx.get(getattr(unit, name).ready):
                    payloads.pop(0)
                    offered[name] = False
            for name, items in received.items():
                stream = getattr(unit, name)
                if ctx.get(stream.valid) and ctx.get(stream.ready):
                    items.append(ctx.get(Value.cast(stream.payload)))
            await ctx.tick()
            done = all(len(received[name]) >= count for name, count in sinks.items())
            more -= done and not any(left.values())
            if not more:
                return
        raise AssertionError(f"stuck: {left} are left, {received} were given")

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    return received
