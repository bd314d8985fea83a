"""The FIFO in a memory keeps the order of items, has its full depth, and runs at full rate."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.memory.memory_fifo import MemoryFifo
from testbenches.stream_trial import check_streams


@pytest.mark.parametrize("depth", [2, 3, 5, 8])
def test_items_keep_their_order(depth: int) -> None:
    fifo = MemoryFifo(shape=8, depth=depth)
    rng = random.Random(depth)
    sent: list[int] = []
    received: list[int] = []
    most = 0

    async def bench(ctx) -> None:
        nonlocal most
        for cycle in range(900):
            # Phases with a slow, a fast and a stalled consumer fill and empty the FIFO.
            offers, takes = rng.random() < 0.7, rng.random() < (0.2, 0.9, 0.0)[cycle // 50 % 3]
            item = rng.randrange(256)
            ctx.set(fifo.source.valid, offers)
            ctx.set(fifo.source.payload, item)
            ctx.set(fifo.sink.ready, takes)
            if offers and ctx.get(fifo.source.ready):
                sent.append(item)
            if takes and ctx.get(fifo.sink.valid):
                received.append(ctx.get(fifo.sink.payload))
            assert received == sent[: len(received)]
            most = max(most, len(sent) - len(received))
            await ctx.tick()

    simulator = Simulator(fifo)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(received) > 200
    assert most == depth + 1


@pytest.mark.parametrize("depth", [2, 4])
def test_full_rate_with_a_latency_of_two_cycles(depth: int) -> None:
    fifo = MemoryFifo(shape=8, depth=depth)
    received: list[int] = []

    async def bench(ctx) -> None:
        ctx.set(fifo.source.valid, 1)
        ctx.set(fifo.sink.ready, 1)
        for cycle in range(100):
            ctx.set(fifo.source.payload, cycle)
            assert ctx.get(fifo.source.ready)
            assert ctx.get(fifo.sink.valid) == (cycle >= 2)
            if cycle >= 2:
                received.append(ctx.get(fifo.sink.payload))
            await ctx.tick()

    simulator = Simulator(fifo)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert received == list(range(98))


@pytest.mark.parametrize("depth", [2, 5])
def test_order_is_kept_after_reset(depth: int) -> None:
    items = list(range(120))
    check_streams(MemoryFifo(shape=8, depth=depth), {"source": items}, {"sink": items})


@pytest.mark.parametrize("depth", [1, (1 << 20) + 1, 2.5])
def test_rejects_illegal_depths(depth: object) -> None:
    with pytest.raises(ValueError, match="depth must be an integer from 2 to 1048576, not"):
        MemoryFifo(shape=8, depth=depth)  # pyright: ignore[reportArgumentType]
