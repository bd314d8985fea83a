"""A group's last active positions, fetched ahead of the steps that ask for some of them."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.control.active_union import COUNTER_BITS, REQUESTED, ActiveUnion
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

OWED = data.StructLayout({"ahead": 1})
"""Of a row that is to come."""


class PositionPrefetcher(Unit):
    """Stand between those who ask for active positions and the memory outside.

    A bit for each position of each head says whether it was active in the head's last step. The
    heads whose steps come next are named, each once a step, in the steps' order; as soon as the
    first of a group is, the rows of all positions that were active in any of the group's heads are
    asked for, as long as there is room. What of them is needed `ActiveUnion` says; what misses is
    asked for outside, and the answers leave in the order of the requests.

    **Latency** 2 cycles more for what comes from outside. **Throughput** a row or a request a
    cycle; a row that nobody asked for takes a cycle too.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    heads : In(stream)
        Whose positions to fetch, a head a step; a group's first is taken when the steps before of
        all its heads have ended.
    begins : In(1)
        A step begins.
    may_begin : Out(1)
        The next step's head has been taken.
    freed, freed_head : In
        A step has ended, and whose.
    record : In(struct)
        With `enable`, which lanes of a `head`'s `group` were `active` in its step; `last`.
    asked : In(stream)
        A step's active positions, ascending; `last`.
    answered : Out(stream)
        Their rows, in order.
    requests : Out(stream)
        What outside is asked for.
    fetched : In(stream)
        Its rows, in order.
    hits, misses : Out(32)
        Positions that were asked for since reset, and were there, or not.
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

    def elaborate(self, platform: Any) -> Module:
        """List what to fetch ahead; let the union decide; part what comes by why it was asked."""
        m = Module()
        p = self.parameters
        walked = stream.Signature(p.listed_layout).create(path=("walked",))
        named = stream.Signature(p.head_layout).create(path=("named",))
        # As many rows have room as are listed: what the list waits for is never stuck behind them.
        m.submodules.listed = listed = MemoryFifo(shape=p.listed_layout, depth=p.prefetched)
        m.submodules.missed = missed = Fifo(shape=p.place_layout, depth=2)
        m.submodules.rows = rows = MemoryFifo(shape=p.active_layout, depth=p.prefetched)
        # Of each row that is asked for, whether it was asked for ahead.
        m.submodules.owed = owed = MemoryFifo(shape=OWED, depth=REQUESTED)
        m.submodules.union = union = ActiveUnion(parameters=p)
        self._name(m, named)
        head = self._walk(m, named, walked)
        self._request(m, (walked, head), listed.source, missed.sink, owed.source)
        connect_streams(m, listed.sink, union.listed)
        connect_streams(m, rows.sink, union.ahead)
        connect_streams(m, self.asked, union.asked)
        connect_streams(m, union.missed, missed.source)
        connect_streams(m, union.answered, self.answered)
        # Answers come in the order of the requests: the oldest that is owed is this one.
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
        """Let a group wait for its steps before, which write its rows; count heads named."""
        p, head = self.parameters, self.heads.payload.head
        turn, first, final = Signal(range(p.shared)), Signal(), Signal(p.head_shape)
        # Rows and bits of a group are what its steps before wrote: until the last one is written
        # back, which is that of its last head, the group is away.
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
        """Return the memory of a bit a position, and which heads have been recorded in it."""
        p, record = self.parameters, self.record
        # After reset nothing is known: the memory need not be cleared.
        known, half = Signal(p.heads), Signal(p.heads)
        m.submodules.memory = memory = Memory(
            depth=p.heads << len(group) + 1, width=p.apid.lanes + 1
        )
        m.d.comb += [
            # A step's groups leave while its own list may still be read: each has a half.
            memory.write_address.eq(
                Cat(record.group, ~half.bit_select(record.head, 1), record.head)
            ),
            memory.read_address.eq(Cat(group, half.bit_select(head, 1), head)),
            memory.write_enable.eq(record.enable),
            memory.write_data.eq(Cat(record.active, record.last)),
        ]
        # A head is known once a step of it has been recorded to the end.
        with m.If(record.enable & record.last):
            m.d.sync += known.bit_select(record.head, 1).eq(1)
            m.d.sync += half.bit_select(record.head, 1).eq(~half.bit_select(record.head, 1))
        return memory, known

    def _walk(self, m: Module, named: Any, walked: Any) -> Signal:
        """Go through a group's bits, and end its list; return the head that names its rows."""
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
            # Active in any of the group's heads.
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
            # One group at a time: the lists are in the order of the steps.
            with m.State("NAME"):
                m.d.comb += named.ready.eq(1)
                m.d.sync += [head.eq(named.payload.head), group.eq(0), base.eq(0)]
                with m.If(named.valid):
                    m.next = "END"
                    with m.If(known.bit_select(named.payload.head + (p.shared - 1), 1)):
                        m.next = "READ"
            # The bits of one head after the other; each is there a cycle later.
            with m.State("READ"):
                m.d.comb += memory.read_enable.eq(1)
                m.d.sync += [turn.eq(turn + 1), gathered.eq(Mux(turn == 0, 0, active))]
                with m.If(turn == p.shared - 1):
                    m.d.sync += turn.eq(0)
                    m.next = "GIVE"
            with m.State("GIVE"):
                # Only the step's newest position is active for sure, so that groups may be empty.
                m.d.comb += drain.entries.valid.eq(active.any())
                with m.If(~active.any() | drain.entries.ready):
                    m.d.sync += [group.eq(group + 1), base.eq(base + p.apid.lanes)]
                    m.next = "READ"
                    with m.If(memory.read_data[-1]):
                        m.next = "END"
            # A list has an end of its own: of heads without a step it is all there is.
            with m.State("END"):
                m.d.comb += ended.eq(1)
                with m.If(walked.ready):
                    m.next = "NAME"
        return head

    def _request(
        self, m: Module, walk: tuple[Any, Value], listed: Any, missed: Any, owed: Any
    ) -> None:
        """Ask for what misses first, and for positions as they are listed."""
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
    """Connect who asks for active positions with outside; return whether a step may begin.

    Parameters
    ----------
    tile : LadTile
        Has the streams to outside.
    slots, actives : StepSlots, ActiveFetcher
        Say when steps begin and end; and ask.
    record : struct
        What was active in a group that leaves.
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
