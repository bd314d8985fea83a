"""Requests for rows that a step lacks, and for rows that are fetched ahead."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.active_union import REQUESTED
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class RowRequests(Unit):
    """Request missing rows first, then those to fetch ahead; route each answer by its reason.

    **Latency** 1 cycle to a request, 0 cycles from an answer. **Throughput** one request and one
    answer per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Shapes of positions and rows.

    Members
    -------
    positions : In(stream)
        Positions to fetch ahead: `head`, `position`, and an item with `ends` after the last one of
        a list.
    listed : Out(stream)
        The same items without the head, in the cycle in which their rows are requested.
    missed : In(stream)
        Positions of missing rows.
    requests : Out(stream)
        Positions to fetch from outside.
    fetched : In(stream)
        Their rows, in order.
    ahead, late : Out(stream)
        The rows of `positions`, and those of `missed`.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        rows, places = stream.Signature(p.active_layout), stream.Signature(p.row_request_layout)
        super().__init__(
            {
                "positions": In(stream.Signature(p.wanted_layout)),
                "listed": Out(stream.Signature(p.listed_layout)),
                "missed": In(places),
                "requests": Out(places),
                "fetched": In(rows),
                "ahead": Out(rows),
                "late": Out(rows),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Queue the reason of each request until its answer arrives."""
        m = Module()
        p, positions, missed = self.parameters, self.positions, self.missed
        reason = data.StructLayout({"ahead": 1})
        m.submodules.asks = asks = Fifo(shape=p.row_request_layout, depth=2)
        m.submodules.reasons = reasons = MemoryFifo(shape=reason, depth=REQUESTED)
        connect_streams(m, asks.sink, self.requests)
        ends, asked, owed = positions.payload.ends, asks.source, reasons.source
        # The end of a list needs no request.
        room, early, free = Signal(), Signal(), asked.ready & owed.ready
        m.d.comb += [
            room.eq(ends | (free & ~missed.valid)),
            self.listed.valid.eq(positions.valid & room),
            self.listed.payload.position.eq(positions.payload.position),
            self.listed.payload.ends.eq(ends),
            positions.ready.eq(self.listed.ready & room),
            early.eq(positions.valid & positions.ready & ~ends),
            missed.ready.eq(free),
            asked.valid.eq(early | (missed.valid & owed.ready)),
            asked.payload.head.eq(Mux(early, positions.payload.head, missed.payload.head)),
            asked.payload.position.eq(
                Mux(early, positions.payload.position, missed.payload.position)
            ),
            owed.valid.eq(early | (missed.valid & asked.ready)),
            owed.payload.ahead.eq(early),
        ]
        # Answers arrive in the order of the requests: this one is the oldest request's.
        oldest = reasons.sink
        there, ahead = self.fetched.valid & oldest.valid, oldest.payload.ahead
        m.d.comb += [
            self.ahead.payload.eq(self.fetched.payload),
            self.ahead.valid.eq(there & ahead),
            self.late.payload.eq(self.fetched.payload),
            self.late.valid.eq(there & ~ahead),
            self.fetched.ready.eq(oldest.valid & Mux(ahead, self.ahead.ready, self.late.ready)),
            oldest.ready.eq(self.fetched.valid & self.fetched.ready),
        ]
        return m
