"""Prefetch of the previous step's active positions (Section IV-D)."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.control.active_union import COUNTER_BITS, REQUESTED, ActiveUnion
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

OWED = data.StructLayout({"ahead": 1})
"""Requested row: `ahead` if it is a prefetch."""


class PositionPrefetcher(Unit):
    """Prefetch the rows of positions that were active in a head's previous step.

    One bit per position and head stores whether the position was active in the head's last step.
    The heads of the next steps are announced in the order of the steps. When the first head of a
    group is announced, the unit requests the rows of all positions that were active in any head of
    the group, while there is room. `ActiveUnion` selects the rows that a step needs, and requests
    missing rows. Answers are output in the order of the step's positions.

    **Latency** 2 additional cycles for rows from outside. **Throughput** one row or request per
    cycle; a prefetched row that no head needs takes one cycle, too.

    Parameters
    ----------
    parameters : LadTileParameters
        Sizes of groups, queues and rows.

    Members
    -------
    heads : In(stream)
        Heads of the next steps, one per step. The first head of a group is accepted when the
        previous steps of all its heads are complete.
    begins : In(1)
        A step begins.
    may_begin : Out(1)
        The head of the next step has been accepted.
    freed, freed_head : In
        A step is complete, and its head.
    record : In(struct)
        With `enable`: the lanes of the `group` of a `head` that were `active` in its step; `last`
        group.
    asked : In(stream)
        The active positions of a step in ascending order; `last` with the highest one.
    answered : Out(stream)
        Their rows, in order.
    requests : Out(stream)
        Positions to fetch from outside.
    fetched : In(stream)
        Their rows, in order.
    hits, misses : Out(32)
        Number of positions of `asked` since reset that were on chip, and that were not.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "heads": In(stream.Signature(p.head_layout)),
                "begins": In(1),
                "may_begin": Out(1),
                "freed": In(1),
                "freed_head": In(p.head_shape),
                "record": In(p.record_layout),
                "asked": In(stream.Signature(p.asked_layout)),
                "answered": Out(stream.Signature(p.active_layout)),
                "requests": Out(stream.Signature(p.place_layout)),
                "fetched": In(stream.Signature(p.active_layout)),
                "hits": Out(COUNTER_BITS),
                "misses": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect list, union and requests; route each answer by the reason of its request."""
        m = Module()
        p = self.parameters
        walked = stream.Signature(p.listed_layout).create(path=("walked",))
        named = stream.Signature(p.head_layout).create(path=("named",))
        # The queue of rows holds as many rows as positions are listed: a listed row is never
        # blocked.
        m.submodules.listed = listed = MemoryFifo(shape=p.listed_layout, depth=p.prefetched)
        m.submodules.missed = missed = Fifo(shape=p.place_layout, depth=2)
        m.submodules.rows = rows = MemoryFifo(shape=p.active_layout, depth=p.prefetched)
        # For each request in flight: whether it is a prefetch.
        m.submodules.owed = owed = MemoryFifo(shape=OWED, depth=REQUESTED)
        m.submodules.union = union = ActiveUnion(parameters=p)
        self._name(m, named)
        head = self._list(m, named, walked)
        self._request(m, (walked, head), listed.source, missed.sink, owed.source)
        connect_streams(m, listed.sink, union.listed)
        connect_streams(m, rows.sink, union.ahead)
        connect_streams(m, self.asked, union.asked)
        connect_streams(m, union.missed, missed.source)
        connect_streams(m, union.answered, self.answered)
        # Answers arrive in the order of the requests: this one is the oldest request's.
        early = owed.sink.payload.ahead
        there = self.fetched.valid & owed.sink.valid
        m.d.comb += [
            rows.source.payload.eq(self.fetched.payload),
            rows.source.valid.eq(there & early),
            union.late.payload.eq(self.fetched.payload),
            union.late.valid.eq(there & ~early),
            self.fetched.ready.eq(
                owed.sink.valid & Mux(early, rows.source.ready, union.late.ready)
            ),
            owed.sink.ready.eq(self.fetched.valid & self.fetched.ready),
            self.hits.eq(union.hits),
            self.misses.eq(union.misses),
        ]
        return m

    def _name(self, m: Module, named: Any) -> None:
        """Hold back a group until its previous steps are complete; count announced heads."""
        p, head = self.parameters, self.heads.payload.head
        turn, first, final = Signal(range(p.shared)), Signal(), Signal(p.head_shape)
        # The previous steps of a group write its rows and its bits. A group is `away` until its
        # last head's step is written back.
        away, ahead = Signal(p.heads), Signal(range(p.prefetched + 4))
        free = ~(first & away.bit_select(final, 1)) & ~ahead.all()
        m.d.comb += [
            first.eq(turn == 0),
            final.eq(head + (p.shared - 1)),
            named.payload.eq(self.heads.payload),
            named.valid.eq(self.heads.valid & free & first),
            self.heads.ready.eq(free & (named.ready | ~first)),
            self.may_begin.eq(ahead != 0),
        ]
        takes = self.heads.valid & self.heads.ready
        m.d.sync += ahead.eq(ahead + takes - self.begins)
        with m.If(self.freed):
            m.d.sync += away.bit_select(self.freed_head, 1).eq(0)
        with m.If(takes):
            m.d.sync += turn.eq(Mux(turn == p.shared - 1, 0, turn + 1))
            with m.If(first):
                m.d.sync += away.bit_select(final, 1).eq(1)

    def _recorded(self, m: Module, group: Value, head: Value) -> tuple[Any, Signal]:
        """Return the memory with one bit per position, and the heads that have a record in it."""
        p, record = self.parameters, self.record
        # After reset no head is known, so that the memory needs no initialisation.
        known, half = Signal(p.heads), Signal(p.heads)
        m.submodules.memory = memory = Memory(
            depth=p.heads << len(group) + 1, width=p.apid.lanes + 1
        )
        m.d.comb += [
            # A step's groups are written while its previous list may still be read: each has its
            # own half.
            memory.write_address.eq(
                Cat(record.group, ~half.bit_select(record.head, 1), record.head)
            ),
            memory.read_address.eq(Cat(group, half.bit_select(head, 1), head)),
            memory.write_enable.eq(record.enable),
            memory.write_data.eq(Cat(record.active, record.last)),
        ]
        # A head is known when one of its steps has been recorded completely.
        with m.If(record.enable & record.last):
            m.d.sync += known.bit_select(record.head, 1).eq(1)
            m.d.sync += half.bit_select(record.head, 1).eq(~half.bit_select(record.head, 1))
        return memory, known

    def _list(self, m: Module, named: Any, walked: Any) -> Signal:
        """List the positions of a group's bits, then the end; return the group's first head."""
        p, head = self.parameters, Signal(self.parameters.head_shape, reset_less=True)
        group, base = Signal(p.group_shape), Signal(p.apid.position_shape)
        turn, reader = Signal(range(p.shared)), Signal(p.head_shape)
        m.d.comb += reader.eq(head + turn)
        memory, known = self._recorded(m, group, reader)
        active, gathered, ended = Signal(p.apid.lanes), Signal(p.apid.lanes), Signal()
        entry = data.StructLayout(
            {"base": p.apid.position_shape, "active": p.apid.lanes, "last": 1}
        )
        place = data.StructLayout({"position": p.apid.position_shape, "last": 1})
        m.submodules.drain = drain = PositionDrain(lanes=p.apid.lanes, entry=entry, position=place)
        m.d.comb += [
            # Active in any head of the group.
            active.eq(gathered | memory.read_data[:-1]),
            drain.entries.payload.base.eq(base),
            drain.entries.payload.active.eq(active),
            drain.entries.payload.last.eq(memory.read_data[-1]),
            walked.valid.eq(drain.positions.valid | ended),
            drain.positions.ready.eq(walked.ready),
            walked.payload.position.eq(drain.positions.payload.position),
            walked.payload.ends.eq(ended),
        ]
        with m.FSM(name="walk"):
            # One group of heads at a time, so that the lists are in the order of the steps.
            with m.State("NAME"):
                m.d.comb += named.ready.eq(1)
                m.d.sync += [head.eq(named.payload.head), group.eq(0), base.eq(0)]
                with m.If(named.valid):
                    m.next = "END"
                    with m.If(known.bit_select(named.payload.head + (p.shared - 1), 1)):
                        m.next = "READ"
            # The bits of one head after another; each is valid one cycle after its read.
            with m.State("READ"):
                m.d.comb += memory.read_enable.eq(1)
                m.d.sync += [turn.eq(turn + 1), gathered.eq(Mux(turn == 0, 0, active))]
                with m.If(turn == p.shared - 1):
                    m.d.sync += turn.eq(0)
                    m.next = "GIVE"
            with m.State("GIVE"):
                # Only the newest position is active in every step, so that a group of positions can
                # be empty.
                m.d.comb += drain.entries.valid.eq(active.any())
                with m.If(~active.any() | drain.entries.ready):
                    m.d.sync += [group.eq(group + 1), base.eq(base + p.apid.lanes)]
                    m.next = "READ"
                    with m.If(memory.read_data[-1]):
                        m.next = "END"
            # Every list has an end; the list of a head without a previous step has nothing else.
            with m.State("END"):
                m.d.comb += ended.eq(1)
                with m.If(walked.ready):
                    m.next = "NAME"
        return head

    def _request(
        self, m: Module, walk: tuple[Any, Value], listed: Any, missed: Any, owed: Any
    ) -> None:
        """Request missing rows first, then the listed positions."""
        p, (walked, head) = self.parameters, walk
        m.submodules.asks = asks = Fifo(shape=p.place_layout, depth=2)
        connect_streams(m, asks.sink, self.requests)
        room, early = Signal(), Signal()
        goes = asks.source.ready & owed.ready
        ends, asked = walked.payload.ends, asks.source.payload
        m.d.comb += [
            room.eq(ends | (goes & ~missed.valid)),
            listed.valid.eq(walked.valid & room),
            listed.payload.eq(walked.payload),
            walked.ready.eq(listed.ready & room),
            early.eq(walked.valid & walked.ready & ~ends),
            missed.ready.eq(goes),
            asks.source.valid.eq(early | (missed.valid & owed.ready)),
            asked.head.eq(Mux(early, head, missed.payload.head)),
            asked.position.eq(Mux(early, walked.payload.position, missed.payload.position)),
            owed.valid.eq(early | (missed.valid & asks.source.ready)),
            owed.payload.ahead.eq(early),
        ]


def fetch_active(m: Module, tile: Any, slots: Any, actives: Any, record: Any) -> Value:
    """Connect the fetcher of active positions with the tile's streams, through a prefetcher if any.

    Parameters
    ----------
    tile : LadTile
        The tile, which has the streams to outside.
    slots, actives : StepSlots, ActiveFetcher
        The slots of the steps, and the fetcher of active positions.
    record : struct
        Active positions of a group of a step that is complete.
    """
    p = tile.parameters
    if p.prefetched == 0:
        connect_streams(m, tile.active, actives.fetched)
        asked, sent = actives.requests, tile.active_requests
        m.d.comb += [sent.valid.eq(asked.valid), asked.ready.eq(sent.ready)]
        m.d.comb += [sent.payload[name].eq(asked.payload[name]) for name in ("head", "position")]
        return Const(1, 1)
    m.submodules.prefetcher = prefetcher = PositionPrefetcher(parameters=p)
    connect_streams(m, actives.requests, prefetcher.asked)
    connect_streams(m, prefetcher.answered, actives.fetched)
    connect_streams(m, prefetcher.requests, tile.active_requests)
    connect_streams(m, tile.active, prefetcher.fetched)
    connect_streams(m, tile.coming, prefetcher.heads)
    m.d.comb += [
        prefetcher.record.eq(record),
        prefetcher.begins.eq(slots.begin),
        prefetcher.freed.eq(slots.freed),
        prefetcher.freed_head.eq(slots.freed_head),
        tile.hits.eq(prefetcher.hits),
        tile.misses.eq(prefetcher.misses),
    ]
    return prefetcher.may_begin
