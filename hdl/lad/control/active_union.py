"""The union of a group's active positions: a row is fetched once for all heads that need it."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

REQUESTED = 64
"""Positions that are asked for and not answered yet, at most."""

COUNTER_BITS = 32
"""Of the positions that were asked for."""


class Origin(enum.Enum, shape=2):
    """Where the next row comes from.

    Members
    -------
    AHEAD : int
        It was fetched ahead of the group's first step.
    KEPT : int
        A head before in the group left it on chip.
    LATE : int
        From outside, because it was on neither list.
    """

    AHEAD = 0
    KEPT = 1
    LATE = 2


VERDICT = data.StructLayout({"origin": Origin, "given": 1, "kept": 1})
"""Of a row: whether this head takes it, and whether the following ones may."""


class ActiveUnion(Unit):
    """Answer the active positions of a group's heads, which follow each other, from one list.

    The first head's list is what was fetched ahead, each other's what the head before has left: all
    of its own list, and of what came to it as many as have room, the lowest positions first. A list
    and a step's positions ascend both, so that they are merged as two sorted lists; the same
    verdicts, a queue later, say what becomes of each row, and no row is ever looked up. The last
    head leaves nothing, as every head of a group of one does.

    **Latency** 2 cycles more for what comes from outside. **Throughput** a row or a request a
    cycle; a row of the list that the head does not need takes a cycle too, and its end another one.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    listed : In(stream)
        Positions that were fetched ahead of a group's steps, ascending; one that `ends` the list.
    ahead : In(stream)
        Their rows, in order.
    asked : In(stream)
        A step's active positions, ascending, none of its list behind the `last`.
    missed : Out(stream)
        What has to come from outside.
    late : In(stream)
        That, in order.
    answered : Out(stream)
        The rows of what was asked, in order.
    hits, misses : Out(32)
        Positions that were asked for since reset, and were there, or not.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "listed": In(stream.Signature(p.listed_layout)),
                "ahead": In(stream.Signature(p.active_layout)),
                "asked": In(stream.Signature(p.asked_layout)),
                "missed": Out(stream.Signature(p.place_layout)),
                "late": In(stream.Signature(p.active_layout)),
                "answered": Out(stream.Signature(p.active_layout)),
                "hits": Out(COUNTER_BITS),
                "misses": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Merge positions; let verdicts wait for the rows."""
        m = Module()
        p, layout = self.parameters, self.parameters.listed_layout
        m.submodules.verdicts = verdicts = MemoryFifo(shape=VERDICT, depth=REQUESTED)
        # Which of the group's heads asks.
        turn, first, final = Signal(range(p.shared)), Signal(), Signal()
        m.d.comb += [first.eq(turn == 0), final.eq(turn == p.shared - 1)]
        merged = stream.Signature(layout).create(path=("merged",))
        stays = stream.Signature(layout).create(path=("stays",))
        rows = {Origin.AHEAD: self.ahead, Origin.LATE: self.late}
        with m.If(first):
            connect_streams(m, self.listed, merged)
        if p.shared > 1:
            # Never full: what is kept had a place when it was decided on; an end has one more.
            m.submodules.positions = positions = MemoryFifo(shape=layout, depth=p.kept + 1)
            m.submodules.rows = held = MemoryFifo(shape=p.active_layout, depth=max(p.kept, 2))
            connect_streams(m, stays, positions.source)
            with m.If(~first):
                connect_streams(m, positions.sink, merged)
            rows[Origin.KEPT] = held.sink
        ends = self._merge(m, merged, verdicts.source, stays, first, final)
        with m.If(ends):
            m.d.sync += turn.eq(Mux(final, 0, turn + 1))
        kept = self._answer(m, verdicts.sink, rows)
        if p.shared > 1:
            m.d.comb += [held.source.valid.eq(kept), held.source.payload.eq(self.answered.payload)]
        return m

    def _merge(
        self, m: Module, listed: Any, verdicts: Any, stays: Any, first: Value, final: Value
    ) -> Value:
        """Compare the next position of the list with the next that is asked; return the end."""
        asked, item, verdict = self.asked.payload, listed.payload, verdicts.payload
        passes, equal, missing, decides, goes = (
            Signal(name=name) for name in ("passes", "equal", "missing", "decides", "goes")
        )
        over, ends = Signal(), Signal()
        m.d.comb += [
            passes.eq(~item.ends & (item.position < asked.position)),
            equal.eq(~item.ends & (item.position == asked.position)),
            missing.eq(~passes & ~equal),
            decides.eq(self.asked.valid & listed.valid & ~over),
            # The row may still be on its way; whoever answers waits for it.
            verdicts.valid.eq(decides & (~missing | self.missed.ready)),
            self.missed.valid.eq(decides & missing & verdicts.ready),
            self.missed.payload.head.eq(asked.head),
            self.missed.payload.position.eq(asked.position),
            goes.eq(verdicts.valid & verdicts.ready),
            self.asked.ready.eq(goes & ~passes),
            # Behind a step's last position there is only the end of its list.
            listed.ready.eq((goes & ~missing) | over),
            ends.eq(over & listed.valid & item.ends),
            verdict.origin.eq(Mux(missing, Origin.LATE, Mux(first, Origin.AHEAD, Origin.KEPT))),
            verdict.given.eq(~passes),
            verdict.kept.eq(self._keeps(m, goes, ~first & ~missing, final, ends)),
            stays.valid.eq((goes & verdict.kept) | (ends & ~final)),
            stays.payload.position.eq(Mux(passes, item.position, asked.position)),
            stays.payload.ends.eq(over),
        ]
        with m.If(self.asked.valid & self.asked.ready & asked.last):
            m.d.sync += over.eq(1)
        with m.Elif(ends):
            m.d.sync += over.eq(0)
        return ends

    def _keeps(self, m: Module, goes: Value, old: Value, final: Value, ends: Value) -> Value:
        """Return whether a row is kept: those that are do not move, others while there is room."""
        p = self.parameters
        count, room = Signal(range(p.kept + 1)), Signal()
        m.d.comb += room.eq(count != p.kept)
        with m.If(ends & final):
            m.d.sync += count.eq(0)
        with m.Elif(goes & ~final & ~old & room):
            m.d.sync += count.eq(count + 1)
        return ~final & (old | room)

    def _answer(self, m: Module, verdicts: Any, rows: dict[Origin, Any]) -> Value:
        """Give or pass rows in the order of the verdicts; return whether one is kept."""
        verdict, answered = verdicts.payload, self.answered
        there, goes = Signal(), Signal()
        with m.Switch(verdict.origin):
            for origin, row in rows.items():
                with m.Case(origin):
                    m.d.comb += [
                        answered.payload.eq(row.payload),
                        there.eq(row.valid),
                        row.ready.eq(goes),
                    ]
        m.d.comb += [
            answered.valid.eq(verdicts.valid & there & verdict.given),
            goes.eq(verdicts.valid & there & (~verdict.given | answered.ready)),
            verdicts.ready.eq(goes),
        ]
        late = verdict.origin == Origin.LATE
        for counter, counts in ((self.hits, ~late), (self.misses, late)):
            m.d.sync += counter.eq(counter + (goes & verdict.given & counts))
        return goes & verdict.kept
