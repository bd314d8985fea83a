"""Stage 4: keys, values and counters of active positions, for the two modules behind it."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.lane_groups import LaneCollector
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUESTED = 64
"""Positions that are asked for and not there yet, at most."""


class ActiveFetcher(Unit):
    """Ask for what belongs to each active position, and hand it on in lanes.

    Keys go to the mode discrepancy module at once; with their values they wait on chip for the
    attention computation, which takes them as their coefficients come. So a step may have more
    active positions than can wait.

    **Latency** 2 cycles from a key to its transfer. **Throughput** one position a cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    head : In
        Whose step the positions belong to.
    positions : In(stream)
        From the active position module.
    requests : Out(stream)
        `head` and `position`; `last`.
    fetched : In(stream)
        Their `key` and `value`, in order.
    counter_requests : Out(stream)
        `head` and `position`, of the head's own counters.
    tallies : In(stream)
        Their `counters`, in order.
    active : Out(stream)
        For the mode discrepancy module.
    vectors : Out(stream)
        For the attention computation module.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "head": In(p.head_shape),
                "positions": In(stream.Signature(p.apid.position_layout)),
                "requests": Out(stream.Signature(p.asked_layout)),
                "fetched": In(stream.Signature(p.active_layout)),
                "counter_requests": Out(stream.Signature(p.place_layout)),
                "tallies": In(stream.Signature(p.tally_layout)),
                "active": Out(stream.Signature(p.md.active_layout)),
                "vectors": Out(stream.Signature(p.ac.vectors_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Remember who is asked for; part what comes."""
        m = Module()
        p, vector = self.parameters, self.parameters.vector.vector_layout
        marked = data.StructLayout({"key": vector, "mark": p.md.mark_layout})
        pair = data.StructLayout({"key": vector, "value": vector})
        m.submodules.requested = requested = MemoryFifo(
            shape=p.apid.position_layout, depth=REQUESTED
        )
        m.submodules.marks = marks = LaneCollector(shape=marked, lanes=p.md.lanes)
        m.submodules.waiting = waiting = MemoryFifo(
            shape=data.StructLayout({"item": pair, "last": 1}), depth=p.waiting
        )
        m.submodules.pairs = pairs = LaneCollector(shape=pair, lanes=p.ac.lanes)
        connect_streams(m, waiting.sink, pairs.items)

        # What is known of a position waits for its row.
        named, known = self.positions, requested.sink.payload
        m.submodules.asks = asks = Fifo(shape=p.place_layout, depth=2)
        connect_streams(m, asks.sink, self.counter_requests)
        for asked in (self.requests, asks.source):
            m.d.comb += [
                asked.payload.head.eq(self.head),
                asked.payload.position.eq(named.payload.position),
            ]
        # Who asks has kept a place for the name: answers are never longer than that queue.
        sinks = (self.requests, asks.source, requested.source)
        comes = Signal()
        m.d.comb += [
            named.ready.eq(fork_handshake(m, named.valid, sinks)),
            self.requests.payload.last.eq(named.payload.last),
            requested.source.payload.eq(named.payload),
        ]
        # Key and value go two ways at once: neither side may take one that the other refuses.
        taken = marks.items.ready & waiting.source.ready
        m.d.comb += [
            comes.eq(join_handshake(m, (self.fetched, self.tallies, requested.sink), taken)),
            marks.items.valid.eq(comes & waiting.source.ready),
            waiting.source.valid.eq(comes & marks.items.ready),
        ]
        item, mark = marks.items.payload, marks.items.payload["item"].mark
        content = self.fetched.payload
        m.d.comb += [
            item.last.eq(known.last),
            item["item"].key.eq(content.key),
            mark.position.eq(known.position),
            mark.mode.eq(known.mode),
            mark.count.eq(known.count),
            # A step's last position is its newest, which nobody has counted yet.
            mark.counters.eq(Mux(known.last, 0, self.tallies.payload.counters)),
            mark.recent.eq(known.recent),
            mark.graduates.eq(known.graduates),
            waiting.source.payload.last.eq(known.last),
            waiting.source.payload["item"].key.eq(content.key),
            waiting.source.payload["item"].value.eq(content.value),
        ]
        self._lanes(m, marks.groups, pairs.groups)
        return m

    def _lanes(self, m: Module, marks: Any, pairs: Any) -> None:
        """Lay the lanes out as the modules take them."""
        p = self.parameters
        active, vectors = self.active.payload, self.vectors.payload
        m.d.comb += [
            self.active.valid.eq(marks.valid),
            marks.ready.eq(self.active.ready),
            active.present.eq(marks.payload.present),
            active.last.eq(marks.payload.last),
            self.vectors.valid.eq(pairs.valid),
            pairs.ready.eq(self.vectors.ready),
        ]
        for lane in range(p.md.lanes):
            m.d.comb += [
                active["keys"][lane].eq(marks.payload.lanes[lane].key),
                active.marks[lane].eq(marks.payload.lanes[lane].mark),
            ]
        for lane in range(p.ac.lanes):
            m.d.comb += [
                vectors["keys"][lane].eq(pairs.payload.lanes[lane].key),
                vectors["values"][lane].eq(pairs.payload.lanes[lane].value),
            ]
