"""Record of the positions that were active in each head's last step."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit

WAITING = 8
"""Groups of positions that are read ahead of those that are listed."""


class ActiveRecord(Unit):
    """Store one bit per position and head; list the positions that any head of a group has.

    After reset no head has a record, so that the memory needs no initialisation. Each head has two
    halves: a step's record is written while its previous one may still be read.

    **Latency** ``shared`` + 4 cycles from a group of heads to its first position. **Throughput**
    one position per cycle, and one group of positions per ``shared`` cycles.

    Parameters
    ----------
    parameters : LadTileParameters
        Number of heads, heads per group, positions and lanes.

    Members
    -------
    record : In(struct)
        With `enable`: the lanes of the `group` of a `head` that were `active` in its step; `last`
        group.
    head_groups : In(stream)
        The first `head` of a group of heads.
    positions : Out(stream)
        The `position`s of the group's list in ascending order, with the group's first `head`; an
        item with `ends` after the last one.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "record": In(p.record_layout),
                "head_groups": In(stream.Signature(p.head_layout)),
                "positions": Out(stream.Signature(p.wanted_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the bits of all heads of a group, one group of positions after another."""
        m = Module()
        p, record = self.parameters, self.record
        lanes = p.apid.lanes
        known, half = Signal(p.stored_heads), Signal(p.stored_heads)
        head, reader = Signal(p.head_shape, reset_less=True), Signal(p.head_shape)
        group, base = Signal(p.group_shape), Signal(p.apid.position_shape)
        turn = Signal(range(p.shared))
        depth = p.stored_heads << len(group) + 1
        m.submodules.memory = memory = Memory(depth=depth, width=lanes + 1)
        m.d.comb += [
            reader.eq(head + turn),
            memory.write_address.eq(
                Cat(record.group, ~half.bit_select(record.head, 1), record.head)
            ),
            memory.read_address.eq(Cat(group, half.bit_select(reader, 1), reader)),
            memory.write_enable.eq(record.enable),
            memory.write_data.eq(Cat(record.active, record.last)),
        ]
        # A head is known when one of its steps has been recorded completely.
        with m.If(record.enable & record.last):
            m.d.sync += [
                known.bit_select(record.head, 1).eq(1),
                half.bit_select(record.head, 1).eq(~half.bit_select(record.head, 1)),
            ]

        # A word at the memory's output is `there` until it is used, and `final` if it is that of
        # the last head. Nothing is read between the end of a list and the next group of heads.
        opened, there, final, goes, ends, unknown = (
            Signal(name=name) for name in ("opened", "there", "final", "goes", "ends", "unknown")
        )
        active, gathered, start = Signal(lanes), Signal(lanes), Signal(p.apid.position_shape)
        entry = data.StructLayout({"base": p.apid.position_shape, "active": lanes, "last": 1})
        listed = data.StructLayout({"head": p.head_shape, "entry": entry})
        m.submodules.entries = entries = MemoryFifo(shape=listed, depth=WAITING)
        asked, given = self.head_groups, entries.source
        last_head = (asked.payload.head + (p.shared - 1))[: len(head)]
        m.d.comb += [
            active.eq(gathered | memory.read_data[:-1]),
            # Only the newest position is active in every step, so that a group of positions can
            # be empty.
            goes.eq(there & (~final | ~active.any() | given.ready)),
            ends.eq(goes & final & memory.read_data[-1]),
            # The memory's output keeps its word until the next read.
            memory.read_enable.eq(opened & (~there | goes) & ~ends),
            # One group of heads at a time, so that the lists are in the order of the steps.
            asked.ready.eq(~opened & given.ready),
            unknown.eq(asked.valid & asked.ready & ~known.bit_select(last_head, 1)),
            given.valid.eq(unknown | (there & final & active.any())),
            given.payload.head.eq(head),
            given.payload.entry.base.eq(start),
            # The list of a head without a record has an end and nothing else.
            given.payload.entry.active.eq(Mux(unknown, 0, active)),
            given.payload.entry.last.eq(unknown | memory.read_data[-1]),
        ]
        with m.If(asked.valid & asked.ready):
            m.d.sync += [head.eq(asked.payload.head), group.eq(0), base.eq(0), opened.eq(~unknown)]
        with m.Elif(ends):
            m.d.sync += opened.eq(0)
        with m.If(goes):
            m.d.sync += [there.eq(0), gathered.eq(Mux(final, 0, active))]
        # The bits of one head after another, then those of the next group of positions.
        with m.If(memory.read_enable):
            m.d.sync += [there.eq(1), final.eq(turn == p.shared - 1), start.eq(base)]
            m.d.sync += turn.eq(Mux(turn == p.shared - 1, 0, turn + 1))
            with m.If(turn == p.shared - 1):
                m.d.sync += [group.eq(group + 1), base.eq(base + lanes)]
        self._list(m, entries.sink)
        return m

    def _list(self, m: Module, entries: stream.Interface) -> None:
        """List the positions of each entry, and the end after those of the last one."""
        p, positions, listed = self.parameters, self.positions, entries.payload
        place = data.StructLayout({"position": p.apid.position_shape, "last": 1})
        m.submodules.drain = drain = PositionDrain(
            lanes=p.apid.lanes, entry=listed.entry.shape(), position=place
        )
        over, some, ended = Signal(), Signal(), Signal()
        m.d.comb += [
            some.eq(listed.entry.active.any()),
            ended.eq(over | (entries.valid & ~some)),
            drain.entries.payload.eq(listed.entry),
            drain.entries.valid.eq(entries.valid & some & ~over),
            drain.positions.ready.eq(positions.ready),
            entries.ready.eq(~over & Mux(some, drain.entries.ready, positions.ready)),
            positions.valid.eq(entries.valid | over),
            positions.payload.head.eq(listed.head),
            positions.payload.position.eq(drain.positions.payload.position),
            positions.payload.ends.eq(ended),
        ]
        with m.If(positions.valid & positions.ready):
            m.d.sync += over.eq(~ended & drain.positions.payload.last)
