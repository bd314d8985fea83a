"""Record of the positions that were active in each head's last step."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class ActiveRecord(Unit):
    """Store one bit per position and head; list the positions that any head of a group has.

    After reset no head has a record, so that the memory needs no initialisation. Each head has two
    halves: a step's record is written while its previous one may still be read.

    **Latency** 3 cycles from a group to its first position. **Throughput** one position per cycle,
    and ``shared + 1`` cycles per group of positions without one.

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
        p, record, positions = self.parameters, self.record, self.positions
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

        entry = data.StructLayout({"base": p.apid.position_shape, "active": lanes, "last": 1})
        place = data.StructLayout({"position": p.apid.position_shape, "last": 1})
        m.submodules.drain = drain = PositionDrain(lanes=lanes, entry=entry, position=place)
        active, gathered, ended = Signal(lanes), Signal(lanes), Signal()
        m.d.comb += [
            active.eq(gathered | memory.read_data[:-1]),
            drain.entries.payload.base.eq(base),
            drain.entries.payload.active.eq(active),
            drain.entries.payload.last.eq(memory.read_data[-1]),
            drain.positions.ready.eq(positions.ready),
            positions.valid.eq(drain.positions.valid | ended),
            positions.payload.head.eq(head),
            positions.payload.position.eq(drain.positions.payload.position),
            positions.payload.ends.eq(ended),
        ]
        with m.FSM(name="list"):
            # One group of heads at a time, so that the lists are in the order of the steps.
            with m.State("ACCEPT"):
                m.d.comb += self.head_groups.ready.eq(1)
                m.d.sync += [head.eq(self.head_groups.payload.head), group.eq(0), base.eq(0)]
                with m.If(self.head_groups.valid):
                    m.next = "END"
                    with m.If(known.bit_select(self.head_groups.payload.head + (p.shared - 1), 1)):
                        m.next = "READ"
            # The bits of one head after another; each is valid one cycle after its read.
            with m.State("READ"):
                m.d.comb += memory.read_enable.eq(1)
                m.d.sync += [turn.eq(turn + 1), gathered.eq(Mux(turn == 0, 0, active))]
                with m.If(turn == p.shared - 1):
                    m.d.sync += turn.eq(0)
                    m.next = "LIST"
            with m.State("LIST"):
                # Only the newest position is active in every step, so that a group of positions can
                # be empty.
                m.d.comb += drain.entries.valid.eq(active.any())
                with m.If(~active.any() | drain.entries.ready):
                    m.d.sync += [group.eq(group + 1), base.eq(base + lanes)]
                    m.next = "READ"
                    with m.If(memory.read_data[-1]):
                        m.next = "END"
            # Every list has an end; the list of a head without a record has nothing else.
            with m.State("END"):
                m.d.comb += ended.eq(1)
                with m.If(positions.ready):
                    m.next = "ACCEPT"
        return m
