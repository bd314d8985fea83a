"""The FIFO passes items through without delay, keeps their order, and refuses a bad depth."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.stream.fall_through_fifo import FallThroughFifo
from testbenches.stream_trial import check_streams


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_leave_in_order_and_at_once(depth: int) -> None:
    fifo = FallThroughFifo(shape=8, depth=depth)
    rng = random.Random(depth)
    sent: list[int] = []
    received: list[int] = []
    at_once = 0

    async def bench(ctx) -> None:
        nonlocal at_once
        for cycle in range(600):
            # Phases in which the consumer is slow, fast, and dead fill and empty the FIFO.
            offers, takes = rng.random() < 0.6, rng.random() < (0.2, 0.9, 0.0)[cycle // 50 % 3]
            item = rng.randrange(256)
            ctx.set(fifo.source.valid, offers)
            ctx.set(fifo.source.payload, item)
            ctx.set(fifo.sink.ready, takes)
            waiting = len(sent) - len(received)
            assert ctx.get(fifo.waiting) == waiting
            assert ctx.get(fifo.source.ready) == (waiting < depth)
            arrives = offers and waiting < depth
            assert ctx.get(fifo.sink.valid) == (waiting > 0 or offers)
            if arrives:
                sent.append(item)
            if takes and ctx.get(fifo.sink.valid):
                at_once += waiting == 0
                received.append(ctx.get(fifo.sink.payload))
            assert received == sent[: len(received)]
            await ctx.tick()

    simulator = Simulator(fifo)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(received) > 100
    assert at_once > 10


@pytest.mark.parametrize("depth", [1, 3])
def test_order_stands_a_reset(depth: int) -> None:
    items = list(range(100))
    check_streams(FallThroughFifo(shape=8, depth=depth), {"source": items}, {"sink": items})


@pytest.mark.parametrize("depth", [0, 65, 1.5])
def test_bad_depth_is_refused(depth: object) -> None:
    with pytest.raises(ValueError, match="depth must be an integer from 1 to 64, not"):
        FallThroughFifo(shape=8, depth=depth)  # pyright: ignore[reportArgumentType]
