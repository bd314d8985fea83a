"""Connections of streams transfer each item once, with any pauses."""

from itertools import product
from typing import Any

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.stream.connect import (
    buffered,
    connect_handshake,
    connect_prioritised,
    connect_registered,
    connect_streams,
    every,
    fork_handshake,
    join_handshake,
)
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from testbenches.stream_trial import check_streams, run_streams

ITEMS = list(range(1, 60))


class Link(Unit):
    """A connection of several sources and sinks, each sink with a FIFO."""

    def __init__(self, *, kind: str, sources: int = 1, sinks: int = 1) -> None:
        self.kind = kind
        # A joined item contains the items of all sources.
        joined = stream.Signature(8 * sources)
        super().__init__(
            {
                "sources": In(stream.Signature(8)).array(sources),
                "sinks": Out(joined).array(sinks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.kind in ("streams", "registered"):
            link = connect_streams if self.kind == "streams" else connect_registered
            link(m, self.sources[0], self.sinks[0])
            return m
        if self.kind == "prioritised":
            connect_prioritised(m, self.sources, self.sinks[0])
            return m
        if self.kind == "handshake":
            connect_handshake(m, self.sources[0], self.sinks[0])
            m.d.comb += self.sinks[0].payload.eq(self.sources[0].payload ^ 0x55)
            return m
        if self.kind == "buffered":
            connect_streams(m, buffered(m, "buffer", self.sources[0], depth=2), self.sinks[0])
            return m
        # `ready` of a sink must not depend on its `valid`, which a FIFO ensures.
        fifos = [Fifo(shape=sink.payload.shape(), depth=2) for sink in self.sinks]
        for number, (fifo, sink) in enumerate(zip(fifos, self.sinks, strict=True)):
            m.submodules[f"fifo_{number}"] = fifo
            connect_streams(m, fifo.sink, sink)
        sides = [fifo.source for fifo in fifos]
        valid = join_handshake(m, self.sources, every([side.ready for side in sides]))
        fork_handshake(m, valid, sides)
        payload = sum(
            Value.cast(source.payload) << 8 * place for place, source in enumerate(self.sources)
        )
        m.d.comb += [side.payload.eq(payload) for side in sides]
        return m


@pytest.mark.parametrize("kind", ["streams", "registered", "buffered"])
def test_one_to_one(kind: str) -> None:
    check_streams(Link(kind=kind), {"sources.0": ITEMS}, {"sinks.0": ITEMS})


def test_handshake_does_not_drive_the_payload() -> None:
    changed = [item ^ 0x55 for item in ITEMS]
    check_streams(Link(kind="handshake"), {"sources.0": ITEMS}, {"sinks.0": changed})


def test_the_first_valid_source_has_priority() -> None:
    """All combinations of three sources' `valid` and of `ready`; the connection has no state."""
    unit = Link(kind="prioritised", sources=3)

    async def combinations(ctx: Any) -> None:
        sink = unit.sinks[0]
        for *offers, ready in product((0, 1), repeat=4):
            for number, (source, valid) in enumerate(zip(unit.sources, offers, strict=True)):
                ctx.set(source.valid, valid)
                ctx.set(source.payload, 0x11 * (number + 1))
            ctx.set(sink.ready, ready)
            first = offers.index(1) if any(offers) else None
            assert ctx.get(sink.valid) == (first is not None)
            if first is not None:
                assert ctx.get(sink.payload) == 0x11 * (first + 1)
            # A source that does not offer an item may see any `ready`.
            taken = [
                valid and ctx.get(source.ready)
                for source, valid in zip(unit.sources, offers, strict=True)
            ]
            assert taken == [ready if number == first else 0 for number in range(3)]

    simulator = Simulator(unit)
    simulator.add_testbench(combinations)
    simulator.run()


@pytest.mark.parametrize(("sources", "sinks"), [(1, 3), (3, 1), (2, 2)])
def test_joined_and_forked(sources: int, sinks: int) -> None:
    sent = {f"sources.{n}": [item + 64 * n for item in ITEMS] for n in range(sources)}
    joined = [sum(item + 64 * n << 8 * n for n in range(sources)) for item in ITEMS]
    unit = Link(kind="joined", sources=sources, sinks=sinks)
    check_streams(unit, sent, {f"sinks.{n}": joined for n in range(sinks)})


@pytest.mark.parametrize(("kind", "cycles"), [("streams", 0), ("registered", 1), ("buffered", 0)])
def test_full_rate(kind: str, cycles: int) -> None:
    unit, offered = Link(kind=kind), []

    def watch(ctx: Any) -> None:
        offered.append(ctx.get(unit.sinks[0].valid))

    sources, sinks = {"sources.0": ITEMS}, {"sinks.0": len(ITEMS)}
    run_streams(unit, sources, sinks, seed=0, pauses="none", cycle=watch)
    assert offered[: len(ITEMS) + cycles] == [*[0] * cycles, *[1] * len(ITEMS)]
