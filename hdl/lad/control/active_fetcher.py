"""Stage 4: keys, values and counters of active positions, for the MD and AC modules."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.lane_transfers import LaneCollector, lanes_layout
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUESTED = 64
"""Maximum number of positions requested and not yet answered."""


class ActiveFetcher(Unit):
    """Request key, value and counters of each active position, and group the answers in lanes.

    Keys are forwarded to the MD module at once. Keys and values are also queued for the AC module,
    which takes them together with their coefficients. A step can therefore have more active
    positions than the queue holds. The queue holds whole transfers, so that the AC module can take
    one per cycle.

    **Latency** 2 cycles from a key to its transfer. **Throughput** one position per cycle from the
    memory outside; one transfer per cycle from the queue.

    Parameters
    ----------
    parameters : LadTileParameters
        Lanes, slots and queue depths.

    Members
    -------
    head : In
        Head to which the positions belong.
    positions : In(stream)
        The step's active positions (the paper's J), from the APID module.
    requests : Out(stream)
        `head` and `position` of a key and value to fetch; `last` of a step.
    fetched : In(stream)
        The requested `key` and `value`, in order.
    counter_requests : Out(stream)
        `head` and `position` of the counters to fetch.
    tallies : In(stream)
        The requested `counters`, in order.
    active : Out(stream)
        Keys and states of active positions, for the MD module.
    vectors : Out(stream)
        Keys and values of active positions, for the AC module.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "head": In(p.head_shape),
                "positions": In(stream.Signature(p.apid.position_layout)),
                "requests": Out(stream.Signature(p.asked_layout)),
                "fetched": In(stream.Signature(p.active_layout)),
                "counter_requests": Out(stream.Signature(p.row_request_layout)),
                "tallies": In(stream.Signature(p.tally_layout)),
                "active": Out(stream.Signature(p.md.active_layout)),
                "vectors": Out(stream.Signature(p.ac.vectors_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Queue the requested positions, and send each answer to both modules."""
        m = Module()
        p, vector = self.parameters, self.parameters.vector.vector_layout
        marked = data.StructLayout({"key": vector, "mark": p.md.mark_layout})
        pair = data.StructLayout({"key": vector, "value": vector})
        m.submodules.requested = requested = MemoryFifo(
            shape=p.apid.position_layout, depth=REQUESTED
        )
        m.submodules.marks = marks = LaneCollector(shape=marked, lanes=p.md.lanes)
        m.submodules.pairs = pairs = LaneCollector(shape=pair, lanes=p.ac.lanes)
        m.submodules.waiting = waiting = MemoryFifo(
            shape=lanes_layout(pair, p.ac.lanes), depth=-(-p.waiting // p.ac.lanes)
        )
        connect_streams(m, pairs.transfers, waiting.source)

        # The state of a position is queued until its row arrives.
        named, known = self.positions, requested.sink.payload
        m.submodules.asks = asks = Fifo(shape=p.row_request_layout, depth=2)
        connect_streams(m, asks.sink, self.counter_requests)
        for asked in (self.requests, asks.source):
            m.d.comb += [
                asked.payload.head.eq(self.head),
                asked.payload.position.eq(named.payload.position),
            ]
        # A request is sent only if its position has room in the queue, so the queue cannot
        # overflow.
        sinks = (self.requests, asks.source, requested.source)
        comes = Signal()
        m.d.comb += [
            named.ready.eq(fork_handshake(m, named.valid, sinks)),
            self.requests.payload.last.eq(named.payload.last),
            requested.source.payload.eq(named.payload),
        ]
        # Key and value go to two queues, both in the same cycle or neither.
        taken = marks.items.ready & pairs.items.ready
        m.d.comb += [
            comes.eq(join_handshake(m, (self.fetched, self.tallies, requested.sink), taken)),
            marks.items.valid.eq(comes & pairs.items.ready),
            pairs.items.valid.eq(comes & marks.items.ready),
        ]
        item, mark = marks.items.payload, marks.items.payload["item"].mark
        content = self.fetched.payload
        m.d.comb += [
            item.last.eq(known.last),
            item["item"].key.eq(content.key),
            mark.position.eq(known.position),
            mark.mode.eq(known.mode),
            mark.count.eq(known.count),
            # The last position of a step is its newest, whose counters start at 0.
            mark.counters.eq(Mux(known.last, 0, self.tallies.payload.counters)),
            mark.recent.eq(known.recent),
            mark.graduates.eq(known.graduates),
            pairs.items.payload.last.eq(known.last),
            pairs.items.payload["item"].key.eq(content.key),
            pairs.items.payload["item"].value.eq(content.value),
        ]
        self._lanes(m, marks.transfers, waiting.sink)
        return m

    def _lanes(self, m: Module, marks: stream.Interface, pairs: stream.Interface) -> None:
        """Map the lanes to the payloads of both modules."""
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
