"""Stage 1: G of a step, and the keys of its centres (C) and of its large modes (M)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.group_walk import count_groups, large_modes
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

REQUESTED = 64
"""Maximum number of keys requested and not yet answered."""


class ScoreFetcher(Unit):
    """Request the keys of C and M while G passes, so that no list of them is stored.

    **Latency** 4 cycles from a group of G to its first key's request. **Throughput** one group and
    one key per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Lanes, slots and shapes of positions and heads.

    Members
    -------
    steps : In(stream)
        `head` and `length` of a step; transferred with its last group.
    groups : In(stream)
        G of its positions, from outside.
    eas_groups : Out(stream)
        The same groups, for the EAS module.
    requests : Out(stream)
        `head` and `position` of a key to fetch.
    fetched : In(stream)
        The requested `key` and its `norm`, in order.
    keys : Out(stream)
        Keys of C and M, for the EAS module.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "steps": In(stream.Signature(p.group_request_layout)),
                "groups": In(stream.Signature(p.eas.group_layout)),
                "eas_groups": Out(stream.Signature(p.eas.group_layout)),
                "requests": Out(stream.Signature(p.row_request_layout)),
                "fetched": In(stream.Signature(p.key_layout)),
                "keys": Out(stream.Signature(p.eas.key_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Forward G; queue the positions of each group whose keys are needed."""
        m = Module()
        p, lanes = self.parameters, self.parameters.apid.lanes
        entry = data.StructLayout(
            {
                "base": p.apid.position_shape,
                "head": p.head_shape,
                "active": lanes,
                "centres": data.ArrayLayout(1, lanes),
                "last": 1,
            }
        )
        position = data.StructLayout({"position": p.apid.position_shape, "centre": 1, "last": 1})
        # The groups of a step are queued until its keys arrive, with room for the next step's
        # groups.
        m.submodules.waiting = waiting = MemoryFifo(
            shape=p.eas.group_layout, depth=2 * max(p.apid.groups, 2)
        )
        m.submodules.wanted = wanted = MemoryFifo(shape=entry, depth=max(p.apid.groups, 2))
        m.submodules.drain = drain = PositionDrain(lanes=lanes, entry=entry, position=position)
        m.submodules.requested = requested = MemoryFifo(shape=position, depth=REQUESTED)
        connect_streams(m, waiting.sink, self.eas_groups)
        connect_streams(m, wanted.sink, drain.entries)

        room, taken = Signal(), Signal()
        m.d.comb += [
            # A group enters both queues or none, so that G and keys stay synchronised.
            room.eq(self.steps.valid & waiting.source.ready & wanted.source.ready),
            taken.eq(self.groups.valid & room),
            self.groups.ready.eq(room),
            waiting.source.valid.eq(taken),
            waiting.source.payload.eq(self.groups.payload),
        ]
        self._list(m, taken, wanted.source)

        # A requested position is queued until its key arrives.
        named, key = drain.positions, self.keys.payload
        m.d.comb += [
            self.requests.valid.eq(named.valid & requested.source.ready),
            self.requests.payload.head.eq(drain.entries.payload.head),
            self.requests.payload.position.eq(named.payload.position),
            named.ready.eq(self.requests.ready & requested.source.ready),
            requested.source.valid.eq(named.valid & self.requests.ready),
            requested.source.payload.eq(named.payload),
            self.keys.valid.eq(self.fetched.valid & requested.sink.valid),
            self.fetched.ready.eq(self.keys.ready & requested.sink.valid),
            requested.sink.ready.eq(self.keys.ready & self.fetched.valid),
            key.key.eq(self.fetched.payload.key),
            key.norm.eq(self.fetched.payload.norm),
            key.position.eq(requested.sink.payload.position),
            key.centre.eq(requested.sink.payload.centre),
            key.last.eq(requested.sink.payload.last),
        ]
        return m

    def _list(self, m: Module, taken: Value, wanted: stream.Interface) -> None:
        """Mark the positions of a group in C or M; the step itself contains the newest key."""
        apid = self.parameters.apid
        # The EAS and APID modules count groups in the same way: all of them see the same lanes.
        cursor = count_groups(m, apid, length=self.steps.payload.length, taken=taken)
        base, remaining = cursor.base, cursor.remaining
        m.d.comb += self.steps.ready.eq(taken & cursor.ends)
        group, entry = self.groups.payload, wanted.payload
        active = []
        for lane, precise in enumerate(large_modes(apid, cursor, group.modes)):
            own = Signal(apid.position_shape, name=f"own_{lane}")
            m.d.comb += [
                own.eq(base + lane),
                entry.centres[lane].eq(group.centres[lane] == own),
            ]
            active.append((remaining > lane + 1) & (precise | entry.centres[lane]))
        m.d.comb += [
            entry.base.eq(base),
            entry.head.eq(self.steps.payload.head),
            entry.active.eq(Cat(active)),
            # The newest position can have a group of its own: the last key is then in the previous
            # group.
            entry.last.eq(remaining <= apid.lanes + 1),
            wanted.valid.eq(taken & Cat(active).any()),
        ]
