"""Stage 1: G of a step, and the keys of its centres and of its large modes."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.group_walk import large_modes, walk_groups
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

REQUESTED = 64
"""Keys that are asked for and not there yet, at most."""


class ScoreFetcher(Unit):
    """Ask for the keys that the scores need as G passes, so that nothing lists them on chip.

    **Latency** 4 cycles from a group of G to its first key's request. **Throughput** a group and a
    key a cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    steps : In(stream)
        A step's `head` and `length`; taken with its last group.
    groups : In(stream)
        G of its positions, from outside.
    rows : Out(stream)
        The same, for the attention score module.
    requests : Out(stream)
        `head` and `position` of a key.
    fetched : In(stream)
        These `key`s and their `norm`s, in order.
    keys : Out(stream)
        For the attention score module.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "steps": In(stream.Signature(p.rows_layout)),
                "groups": In(stream.Signature(p.eas.group_layout)),
                "rows": Out(stream.Signature(p.eas.group_layout)),
                "requests": Out(stream.Signature(p.place_layout)),
                "fetched": In(stream.Signature(p.key_layout)),
                "keys": Out(stream.Signature(p.eas.key_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Let G pass to the scores; list the positions of a group that are wanted."""
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
        # A step's groups wait for its keys; the next step's come meanwhile.
        m.submodules.waiting = waiting = MemoryFifo(
            shape=p.eas.group_layout, depth=2 * max(p.apid.groups, 2)
        )
        m.submodules.wanted = wanted = MemoryFifo(shape=entry, depth=max(p.apid.groups, 2))
        m.submodules.drain = drain = PositionDrain(lanes=lanes, entry=entry, position=position)
        m.submodules.requested = requested = MemoryFifo(shape=position, depth=REQUESTED)
        connect_streams(m, waiting.sink, self.rows)
        connect_streams(m, wanted.sink, drain.entries)

        room, taken = Signal(), Signal()
        m.d.comb += [
            # A group takes both places or none, so that G and the list of keys stay in step.
            room.eq(self.steps.valid & waiting.source.ready & wanted.source.ready),
            taken.eq(self.groups.valid & room),
            self.groups.ready.eq(room),
            waiting.source.valid.eq(taken),
            waiting.source.payload.eq(self.groups.payload),
        ]
        self._list(m, taken, wanted.source)

        # Who is asked for is remembered until the key is there.
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

    def _list(self, m: Module, taken: Value, wanted: Any) -> None:
        """Say which positions of a group are centres or in M; the newest comes with the step."""
        apid = self.parameters.apid
        # The same walk as the modules behind have: all see the same lanes.
        walk = walk_groups(m, apid, length=self.steps.payload.length, taken=taken)
        base, remaining = walk.base, walk.remaining
        m.d.comb += self.steps.ready.eq(taken & walk.ends)
        group, entry = self.groups.payload, wanted.payload
        active = []
        for lane, precise in enumerate(large_modes(apid, walk, group.modes)):
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
            # The newest may have a group of its own: then the last key is in the one before.
            entry.last.eq(remaining <= apid.lanes + 1),
            wanted.valid.eq(taken & Cat(active).any()),
        ]
