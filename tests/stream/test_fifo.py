"""The FIFO passes items without delay, keeps their order, and rejects an illegal depth."""

import random

import pytest
from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.sim import Simulator

from hdl.stream.fifo import Fifo
from testbenches.formal import AnySeq, Assert, prove
from testbenches.stream_trial import check_streams


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_fall_through_in_order(depth: int) -> None:
    fifo = Fifo(shape=8, depth=depth)
    rng = random.Random(depth)
    sent: list[int] = []
    received: list[int] = []
    fell_through = 0

    async def bench(ctx) -> None:
        nonlocal fell_through
        for cycle in range(600):
            # Phases with a slow, a fast and a stalled consumer fill and empty the FIFO.
            offers, takes = rng.random() < 0.6, rng.random() < (0.2, 0.9, 0.0)[cycle // 50 % 3]
            item = rng.randrange(256)
            ctx.set(fifo.source.valid, offers)
            ctx.set(fifo.source.payload, item)
            ctx.set(fifo.sink.ready, takes)
            waiting = len(sent) - len(received)
            assert ctx.get(fifo.waiting) == waiting
            assert ctx.get(fifo.source.ready) == (waiting < depth)
            accepted = offers and waiting < depth
            assert ctx.get(fifo.sink.valid) == (waiting > 0 or offers)
            if accepted:
                sent.append(item)
            if takes and ctx.get(fifo.sink.valid):
                fell_through += waiting == 0
                received.append(ctx.get(fifo.sink.payload))
            assert received == sent[: len(received)]
            await ctx.tick()

    simulator = Simulator(fifo)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(received) > 100
    assert fell_through > 10


@pytest.mark.parametrize("depth", [1, 3])
def test_order_is_kept_after_reset(depth: int) -> None:
    items = list(range(100))
    check_streams(Fifo(shape=8, depth=depth), {"source": items}, {"sink": items})


class FifoHarness(Elaboratable):
    """A FIFO and a model queue, to prove that items keep their order."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fifo = Fifo(shape=2, depth=self.depth)
        m.submodules.fifo = fifo
        offered, writes = AnySeq(1), Signal()
        reads = Signal()
        m.d.comb += [
            fifo.source.valid.eq(offered),
            fifo.source.payload.eq(AnySeq(2)),
            fifo.sink.ready.eq(AnySeq(1)),
            writes.eq(fifo.source.valid & fifo.source.ready),
            reads.eq(fifo.sink.valid & fifo.sink.ready),
        ]
        # A model of the queue: item 0 is output next.
        items = [Signal(2, name=f"item_{i}") for i in range(self.depth)]
        count = Signal(range(self.depth + 1))
        m.d.sync += count.eq(count + writes - reads)
        after = [*items[1:], items[-1]]
        for i, (item, following) in enumerate(zip(items, after, strict=True)):
            with m.If(reads):
                m.d.sync += item.eq(following)
            with m.If(writes & (count - reads == i)):
                m.d.sync += item.eq(fifo.source.payload)
            m.d.comb += Assert((fifo.waiting <= i) | (fifo.entries[i] == item))
        m.d.comb += [
            Assert(fifo.waiting == count),
            Assert(fifo.source.ready == (count != self.depth)),
            Assert(fifo.sink.valid == ((count != 0) | fifo.source.valid)),
            Assert(
                ~fifo.sink.valid
                | (fifo.sink.payload == Mux(count == 0, fifo.source.payload, items[0]))
            ),
        ]
        return m


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_fifo_keeps_order(depth: int) -> None:
    prove(FifoHarness(depth), inputs=[], depth=3)


@pytest.mark.parametrize("depth", [0, 65, 1.5])
def test_rejects_illegal_depths(depth: object) -> None:
    with pytest.raises(ValueError, match="depth must be an integer from 1 to 64, not"):
        Fifo(shape=8, depth=depth)  # pyright: ignore[reportArgumentType]
