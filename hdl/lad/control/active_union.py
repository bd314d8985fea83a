"""Union of the active positions of a group of heads: each row is fetched once per group."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

REQUESTED = 64
"""Maximum number of positions requested and not yet answered."""

COUNTER_BITS = 32
"""Bits of the counters of hits and misses."""


class Origin(enum.Enum, shape=2):
    """Origin of the next row.

    Members
    -------
    AHEAD : int
        Prefetched before the first step of the group.
    KEPT : int
        Kept on chip by a previous head of the group.
    LATE : int
        Fetched from outside on request, since it was on neither list.
    """

    AHEAD = 0
    KEPT = 1
    LATE = 2


DECISION = data.StructLayout({"origin": Origin, "given": 1, "kept": 1})
"""Decision on a row: `given` to this head; `kept` for the next heads of the group."""


class ActiveUnion(Unit):
    """Serve the active positions of a group's heads, one head after another, from a list of rows.

    The first head's list holds the prefetched positions. The list of each other head is what the
    previous head has kept: its whole own list and, while there is room, the rows fetched for it,
    lowest positions first. A list and a step's positions are both in ascending order and are merged
    like two sorted lists. The decisions are queued and later applied to the rows in the same order;
    no row is ever searched. The last head of a group keeps nothing, and neither does a group of one
    head.

    **Latency** 2 additional cycles for rows from outside. **Throughput** one row or request per
    cycle. A row of the list that the head does not need takes one cycle, the end of a list another
    one.

    Parameters
    ----------
    parameters : LadTileParameters
        Sizes of groups, queues and rows.

    Members
    -------
    listed : In(stream)
        Positions prefetched for a group, in ascending order; an item with `ends` after the last
        one.
    ahead : In(stream)
        Their rows, in order.
    asked : In(stream)
        The active positions of a step in ascending order; `last` with the highest one, which is
        never listed.
    missed : Out(stream)
        Positions to fetch from outside.
    late : In(stream)
        Their rows, in order.
    answered : Out(stream)
        The rows of all positions of `asked`, in order.
    hits, misses : Out(32)
        Number of positions of `asked` since reset that were on chip, and that were not.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "listed": In(stream.Signature(p.listed_layout)),
                "ahead": In(stream.Signature(p.active_layout)),
                "asked": In(stream.Signature(p.asked_layout)),
                "missed": Out(stream.Signature(p.row_request_layout)),
                "late": In(stream.Signature(p.active_layout)),
                "answered": Out(stream.Signature(p.active_layout)),
                "hits": Out(COUNTER_BITS),
                "misses": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Merge positions; queue the decisions; apply them to the rows."""
        m = Module()
        p, layout = self.parameters, self.parameters.listed_layout
        m.submodules.decisions = decisions = MemoryFifo(shape=DECISION, depth=REQUESTED)
        # Index of the head within its group.
        turn, first, final = Signal(range(p.shared)), Signal(), Signal()
        m.d.comb += [first.eq(turn == 0), final.eq(turn == p.shared - 1)]
        merged = stream.Signature(layout).create(path=("merged",))
        next_list = stream.Signature(layout).create(path=("next_list",))
        rows = {Origin.AHEAD: self.ahead, Origin.LATE: self.late}
        with m.If(first):
            connect_streams(m, self.listed, merged)
        if p.shared > 1:
            # Cannot overflow: room is checked when a row is kept, and one entry is reserved for the
            # end.
            m.submodules.positions = positions = MemoryFifo(shape=layout, depth=p.kept + 1)
            m.submodules.rows = held = MemoryFifo(shape=p.active_layout, depth=max(p.kept, 2))
            connect_streams(m, next_list, positions.source)
            with m.If(~first):
                connect_streams(m, positions.sink, merged)
            rows[Origin.KEPT] = held.sink
        ends = self._merge(m, turn, merged, decisions.source, next_list)
        with m.If(ends):
            m.d.sync += turn.eq(Mux(final, 0, turn + 1))
        kept = self._answer(m, decisions.sink, rows)
        if p.shared > 1:
            m.d.comb += [held.source.valid.eq(kept), held.source.payload.eq(self.answered.payload)]
        return m

    def _merge(
        self,
        m: Module,
        turn: Value,
        listed: stream.Interface,
        decisions: stream.Interface,
        next_list: stream.Interface,
    ) -> Value:
        """Compare the next listed position with the next requested one; return the list's end.

        Parameters
        ----------
        m : Module
            The unit's module.
        turn : Value
            Index of the head within its group.
        listed, decisions, next_list : stream.Interface
            The list; the decisions; the list for the next head.
        """
        first, final = turn == 0, turn == self.parameters.shared - 1
        asked, item, decision = self.asked.payload, listed.payload, decisions.payload
        passes, equal, missing, decides, goes = (
            Signal(name=name) for name in ("passes", "equal", "missing", "decides", "goes")
        )
        over, ends = Signal(), Signal()
        m.d.comb += [
            passes.eq(~item.ends & (item.position < asked.position)),
            equal.eq(~item.ends & (item.position == asked.position)),
            missing.eq(~passes & ~equal),
            decides.eq(self.asked.valid & listed.valid & ~over),
            # The row may not have arrived yet: `_answer` waits for it.
            decisions.valid.eq(decides & (~missing | self.missed.ready)),
            self.missed.valid.eq(decides & missing & decisions.ready),
            self.missed.payload.head.eq(asked.head),
            self.missed.payload.position.eq(asked.position),
            goes.eq(decisions.valid & decisions.ready),
            self.asked.ready.eq(goes & ~passes),
            # After the last position of a step, only the end of its list is left.
            listed.ready.eq((goes & ~missing) | over),
            ends.eq(over & listed.valid & item.ends),
            decision.origin.eq(Mux(missing, Origin.LATE, Mux(first, Origin.AHEAD, Origin.KEPT))),
            decision.given.eq(~passes),
            decision.kept.eq(self._keeps(m, goes, ~first & ~missing, final, ends)),
            next_list.valid.eq((goes & decision.kept) | (ends & ~final)),
            next_list.payload.position.eq(Mux(passes, item.position, asked.position)),
            next_list.payload.ends.eq(over),
        ]
        with m.If(self.asked.valid & self.asked.ready & asked.last):
            m.d.sync += over.eq(1)
        with m.Elif(ends):
            m.d.sync += over.eq(0)
        return ends

    def _keeps(self, m: Module, goes: Value, old: Value, final: Value, ends: Value) -> Value:
        """Return whether a row is kept: if it was kept before, or while there is room."""
        p = self.parameters
        count, room = Signal(range(p.kept + 1)), Signal()
        m.d.comb += room.eq(count != p.kept)
        with m.If(ends & final):
            m.d.sync += count.eq(0)
        with m.Elif(goes & ~final & ~old & room):
            m.d.sync += count.eq(count + 1)
        return ~final & (old | room)

    def _answer(
        self, m: Module, decisions: stream.Interface, rows: dict[Origin, stream.Interface]
    ) -> Value:
        """Output or discard rows in the order of the decisions; return whether one is kept."""
        decision, answered = decisions.payload, self.answered
        there, goes = Signal(), Signal()
        with m.Switch(decision.origin):
            for origin, row in rows.items():
                with m.Case(origin):
                    m.d.comb += [
                        answered.payload.eq(row.payload),
                        there.eq(row.valid),
                        row.ready.eq(goes),
                    ]
        m.d.comb += [
            answered.valid.eq(decisions.valid & there & decision.given),
            goes.eq(decisions.valid & there & (~decision.given | answered.ready)),
            decisions.ready.eq(goes),
        ]
        late = decision.origin == Origin.LATE
        for counter, counts in ((self.hits, ~late), (self.misses, late)):
            m.d.sync += counter.eq(counter + (goes & decision.given & counts))
        return goes & decision.kept
