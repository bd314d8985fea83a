"""The last step's active positions of a head, fetched ahead of the next step that asks for some."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUESTED = 64
"""Positions that are asked for and not answered yet, at most."""

COUNTER_BITS = 32
"""Of the positions that were asked for."""


OWED = data.StructLayout({"ahead": 1})
"""Of a row that is to come."""


class Verdict(enum.Enum, shape=2):
    """What becomes of the next row, or where the next answer comes from.

    Members
    -------
    DROP : int
        A row that was fetched ahead is not active any more.
    HIT : int
        It is.
    MISS : int
        The answer comes from outside.
    """

    DROP = 0
    HIT = 1
    MISS = 2


VERDICT = data.StructLayout({"verdict": Verdict})


class PositionPrefetcher(Unit):
    """Stand between those who ask for active positions and the memory outside.

    A bit for each position of each head says whether it was active in the head's last step. The
    heads whose steps come next are named, each once a step, in the steps' order; then the rows of
    these positions are asked for, as long as there is room. Both lists of a head ascend, so that a
    step's requests find their rows as two sorted lists are merged: no row is ever looked up. What
    is not there is asked for outside, and the answers leave in the order of the requests.

    **Latency** 2 cycles more for what comes from outside. **Throughput** a row or a request a
    cycle; a row that nobody asked for takes a cycle too.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    heads : In(stream)
        Whose positions to fetch, a head a step; taken when its step before has ended.
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
        """List what to fetch; merge the list with what is asked for; do the same with the rows."""
        m = Module()
        p = self.parameters
        item = data.StructLayout({"place": p.place_layout, "known": 1, "last": 1})
        walked = stream.Signature(item).create(path=("walked",))
        named = stream.Signature(p.head_layout).create(path=("named",))
        m.submodules.listed = listed = MemoryFifo(shape=item, depth=p.prefetched)
        m.submodules.missed = missed = Fifo(shape=p.place_layout, depth=2)
        m.submodules.rows = rows = MemoryFifo(shape=p.active_layout, depth=p.prefetched)
        # Of each row that is asked for, whether it was asked for ahead.
        m.submodules.owed = owed = MemoryFifo(shape=OWED, depth=REQUESTED)
        m.submodules.verdicts = verdicts = MemoryFifo(shape=VERDICT, depth=REQUESTED)
        self._name(m, named)
        self._walk(m, named, walked)
        self._request(m, walked, listed.source, missed.sink, owed.source, rows.sink)
        self._merge(m, listed.sink, missed.source, verdicts.source)
        self._answer(m, verdicts.sink, owed.sink, rows)
        return m

    def _name(self, m: Module, named: Any) -> None:
        """Let a head wait for its step before, which writes its rows; count those named."""
        p, head = self.parameters, self.heads.payload.head
        # Rows and bits of a head are what its step before wrote: until then it is away.
        away, ahead = Signal(p.heads), Signal(range(p.prefetched + 4))
        free = ~away.bit_select(head, 1) & ~ahead.all()
        m.d.comb += [
            named.payload.eq(self.heads.payload),
            named.valid.eq(self.heads.valid & free),
            self.heads.ready.eq(named.ready & free),
            self.may_begin.eq(ahead != 0),
        ]
        takes = named.valid & named.ready
        m.d.sync += ahead.eq(ahead + takes - self.begins)
        with m.If(self.freed):
            m.d.sync += away.bit_select(self.freed_head, 1).eq(0)
        with m.If(takes):
            m.d.sync += away.bit_select(head, 1).eq(1)

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

    def _walk(self, m: Module, named: Any, walked: Any) -> None:
        """Go through a head's bits, group by group; of a head without a step say just that."""
        p, head = self.parameters, Signal(self.parameters.head_shape, reset_less=True)
        group, base = Signal(p.group_shape), Signal(p.apid.position_shape)
        memory, known = self._recorded(m, group, head)
        active, last = memory.read_data[:-1], memory.read_data[-1]
        entry = data.StructLayout(
            {"base": p.apid.position_shape, "active": p.apid.lanes, "last": 1}
        )
        place = data.StructLayout({"position": p.apid.position_shape, "last": 1})
        m.submodules.drain = drain = PositionDrain(lanes=p.apid.lanes, entry=entry, position=place)
        positions, nothing = drain.positions, Signal()
        m.d.comb += [
            drain.entries.payload.base.eq(base),
            drain.entries.payload.active.eq(active),
            drain.entries.payload.last.eq(last),
            walked.valid.eq(positions.valid | nothing),
            positions.ready.eq(walked.ready),
            walked.payload.place.head.eq(head),
            walked.payload.place.position.eq(positions.payload.position),
            walked.payload.known.eq(~nothing),
            walked.payload.last.eq(positions.payload.last | nothing),
        ]
        with m.FSM(name="walk"):
            # One head at a time: the list is in the order of the steps.
            with m.State("NAME"):
                m.d.comb += named.ready.eq(1)
                m.d.sync += [head.eq(named.payload.head), group.eq(0), base.eq(0)]
                with m.If(named.valid):
                    m.next = "NOTHING"
                    with m.If(known.bit_select(named.payload.head, 1)):
                        m.next = "READ"
            # A list without positions still needs an end, for the merge to pass it.
            with m.State("NOTHING"):
                m.d.comb += nothing.eq(1)
                with m.If(walked.ready):
                    m.next = "NAME"
            # A group's bits are there a cycle later.
            with m.State("READ"):
                m.d.comb += memory.read_enable.eq(1)
                m.next = "GIVE"
            with m.State("GIVE"):
                # Only the step's newest position is active for sure, so that groups may be empty.
                m.d.comb += drain.entries.valid.eq(active.any())
                with m.If(~active.any() | drain.entries.ready):
                    m.d.sync += [group.eq(group + 1), base.eq(base + p.apid.lanes)]
                    m.next = "READ"
                    with m.If(last):
                        m.next = "NAME"

    def _request(
        self, m: Module, walked: Any, listed: Any, missed: Any, owed: Any, rows: Any
    ) -> None:
        """Ask for what misses first, and for listed positions while their rows have room."""
        p = self.parameters
        m.submodules.asks = asks = Fifo(shape=p.place_layout, depth=2)
        connect_streams(m, asks.sink, self.requests)
        # Rows that are there or on their way: the answers can never be stuck behind each other.
        reserved, room, early = Signal(range(p.prefetched + 1)), Signal(), Signal()
        goes = asks.source.ready & owed.ready
        known = walked.payload.known
        m.d.comb += [
            room.eq(~known | (goes & ~missed.valid & (reserved != p.prefetched))),
            listed.valid.eq(walked.valid & room),
            listed.payload.eq(walked.payload),
            walked.ready.eq(listed.ready & room),
            early.eq(walked.valid & walked.ready & known),
            missed.ready.eq(goes),
            asks.source.valid.eq(early | (missed.valid & owed.ready)),
            asks.source.payload.eq(Mux(early, walked.payload.place, missed.payload)),
            owed.valid.eq(early | (missed.valid & asks.source.ready)),
            owed.payload.ahead.eq(early),
        ]
        m.d.sync += reserved.eq(reserved + early - (rows.valid & rows.ready))

    def _merge(self, m: Module, listed: Any, missed: Any, verdicts: Any) -> None:
        """Compare the next position that is listed with the next one that is asked for."""
        asked, item = self.asked.payload, listed.payload
        done, passes, equal = Signal(), Signal(), Signal()
        position = asked.position
        m.d.comb += [
            # The newest position was in no list: it waits until its head's is over.
            passes.eq(~item.known | (item.place.position < position) | asked.last),
            equal.eq((item.place.position == position) & ~passes),
            missed.payload.head.eq(asked.head),
            missed.payload.position.eq(position),
        ]
        with m.If(self.asked.valid):
            with m.If(done | (listed.valid & ~passes & ~equal)):
                m.d.comb += [
                    verdicts.payload.verdict.eq(Verdict.MISS),
                    verdicts.valid.eq(missed.ready),
                    missed.valid.eq(verdicts.ready),
                    self.asked.ready.eq(verdicts.ready & missed.ready),
                ]
            with m.Elif(listed.valid & equal):
                m.d.comb += [
                    # The row may still be on its way; whoever answers waits for it.
                    verdicts.payload.verdict.eq(Verdict.HIT),
                    verdicts.valid.eq(1),
                    self.asked.ready.eq(verdicts.ready),
                    listed.ready.eq(verdicts.ready),
                ]
            with m.Elif(listed.valid):
                m.d.comb += [
                    verdicts.payload.verdict.eq(Verdict.DROP),
                    # Where nothing is known there is no row either.
                    verdicts.valid.eq(item.known),
                    listed.ready.eq(verdicts.ready),
                ]
        with m.If(listed.valid & listed.ready & item.last):
            m.d.sync += done.eq(1)
        with m.If(self.asked.valid & self.asked.ready & asked.last):
            m.d.sync += done.eq(0)

    def _answer(self, m: Module, verdicts: Any, owed: Any, rows: Any) -> None:
        """Keep rows that come ahead; give rows in the order of the verdicts."""
        verdict, answered = verdicts.payload.verdict, self.answered
        early = owed.valid & owed.payload.ahead
        late, goes = self.fetched.valid & owed.valid & ~owed.payload.ahead, Signal()
        dropped, missed = verdict == Verdict.DROP, verdict == Verdict.MISS
        m.d.comb += [
            # Answers come in the order of the requests: the oldest that is owed is this one.
            rows.source.payload.eq(self.fetched.payload),
            rows.source.valid.eq(self.fetched.valid & early),
            answered.payload.eq(Mux(missed, self.fetched.payload, rows.sink.payload)),
            answered.valid.eq(verdicts.valid & Mux(missed, late, rows.sink.valid & ~dropped)),
            goes.eq(answered.valid & answered.ready),
            rows.sink.ready.eq(verdicts.valid & (dropped | (goes & ~missed))),
            verdicts.ready.eq(goes | (rows.sink.valid & dropped)),
            self.fetched.ready.eq((early & rows.source.ready) | (goes & missed)),
            owed.ready.eq(self.fetched.valid & self.fetched.ready),
        ]
        for counter, counts in ((self.hits, ~missed), (self.misses, missed)):
            m.d.sync += counter.eq(counter + (goes & counts))


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
