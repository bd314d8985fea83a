"""Modes and counts of all positions after a step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit

CHANGE = data.StructLayout({"mode": MODE_BITS, "count": COUNT_BITS})
"""New mode and count of an active position."""

COLLECTED = 8
"""Groups whose changes are complete while groups without a change are output."""


class MarkMerger(Unit):
    """Merge two ascending streams: groups of positions, and the changes of their active positions.

    The changes of a group are collected while earlier groups are output. Groups wait for the
    changes of their active positions: all groups of a step can arrive before the change of its last
    active position.

    **Latency** 2 cycles from a group, 3 from the last change of a group. **Throughput** one change
    and one group per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Lanes and shapes of positions and heads.

    Members
    -------
    groups : In(stream)
        `counts` and `modes` of a group of positions, its `active` lanes, `last` of the step.
    changes : In(stream)
        `mode` and `count` of each active position, in order.
    merged : Out(stream)
        `group`, the group's number in its step, `modes`, `counts` and `last`; `head` is set by the
        tile.
    active : Out(lanes)
        The lanes of the group that were active.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "groups": In(stream.Signature(p.apid.counts_layout)),
                "changes": In(stream.Signature(CHANGE)),
                "merged": Out(stream.Signature(p.marks_layout)),
                "active": Out(p.apid.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Queue groups, and the active lanes of those that have any; merge both at the output."""
        m = Module()
        p, lanes = self.parameters, self.parameters.apid.lanes
        depth = 2 * max(p.apid.groups, 2)
        m.submodules.waiting = waiting = MemoryFifo(shape=p.apid.counts_layout, depth=depth)
        m.submodules.expected = expected = MemoryFifo(shape=lanes, depth=depth)
        m.submodules.collected = collected = MemoryFifo(
            shape=data.ArrayLayout(CHANGE, lanes), depth=COLLECTED
        )
        group, merged, changes = waiting.sink.payload, self.merged.payload, collected.sink.payload
        number, some = Signal(p.group_shape), Signal()
        m.d.comb += [
            self.groups.ready.eq(waiting.source.ready & expected.source.ready),
            waiting.source.valid.eq(self.groups.valid & expected.source.ready),
            waiting.source.payload.eq(self.groups.payload),
            # The changes of a group without an active position need no cycle.
            expected.source.valid.eq(
                self.groups.valid & waiting.source.ready & self.groups.payload.active.any()
            ),
            expected.source.payload.eq(self.groups.payload.active),
            some.eq(group.active.any()),
            self.merged.valid.eq(waiting.sink.valid & (~some | collected.sink.valid)),
            waiting.sink.ready.eq(self.merged.ready & self.merged.valid),
            collected.sink.ready.eq(waiting.sink.ready & some),
            merged.group.eq(number),
            merged.last.eq(group.last),
            self.active.eq(group.active),
        ]
        for lane in range(lanes):
            for field, whole in (("mode", "modes"), ("count", "counts")):
                m.d.comb += merged[whole][lane].eq(
                    Mux(group.active[lane], changes[lane][field], group[whole][lane])
                )
        with m.If(waiting.sink.ready):
            m.d.sync += number.eq(Mux(group.last, 0, number + 1))
        self._collect(m, expected.sink, collected.source)
        return m

    def _collect(self, m: Module, expected: stream.Interface, collected: stream.Interface) -> None:
        """Assign each change to the lowest active lane left; output all with the last one."""
        lanes, changes = self.parameters.apid.lanes, self.changes
        given, left, lowest = (Signal(lanes, name=name) for name in ("given", "left", "lowest"))
        ends, taken = Signal(), Signal()
        m.d.comb += [
            # Both streams ascend: the next change belongs to the lowest active lane that is left.
            left.eq(expected.payload & ~given),
            lowest.eq(left & (~left + 1)),
            ends.eq(left == lowest),
            changes.ready.eq(expected.valid & (~ends | collected.ready)),
            taken.eq(changes.valid & changes.ready),
            collected.valid.eq(expected.valid & changes.valid & ends),
            expected.ready.eq(taken & ends),
        ]
        for lane in range(lanes):
            # Earlier changes of a group are held until its last one arrives.
            held = Signal(CHANGE, name=f"held_{lane}", reset_less=True)
            m.d.comb += collected.payload[lane].eq(
                Mux(lowest[lane], changes.payload.as_value(), held.as_value())
            )
            with m.If(taken & lowest[lane]):
                m.d.sync += held.eq(changes.payload)
        with m.If(taken):
            m.d.sync += given.eq(Mux(ends, 0, given | lowest))
