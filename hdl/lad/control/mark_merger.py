"""Modes and counts of all positions after a step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.parameters import LadTileParameters
from hdl.unit import Unit

CHANGE = data.StructLayout({"mode": MODE_BITS, "count": COUNT_BITS})
"""New mode and count of an active position."""


class MarkMerger(Unit):
    """Merge two ascending streams: groups of positions, and the changes of their active positions.

    **Latency** 0 cycles. **Throughput** one change per cycle, or one group without a change.

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
        """Insert each change in the lowest active lane left; output the group with the last one."""
        m = Module()
        p, lanes = self.parameters, self.parameters.apid.lanes
        group, change, merged = self.groups.payload, self.changes.payload, self.merged.payload
        given, left, lowest = (Signal(lanes, name=name) for name in ("given", "left", "lowest"))
        number, ends, leaves = Signal(p.group_shape), Signal(), Signal()
        m.d.comb += [
            # Both streams ascend: the next change belongs to the lowest active lane that is left.
            left.eq(group.active & ~given),
            lowest.eq(left & (~left + 1)),
            ends.eq(left == lowest),
            self.merged.valid.eq(self.groups.valid & ends & (self.changes.valid | ~left.any())),
            leaves.eq(self.merged.valid & self.merged.ready),
            self.groups.ready.eq(leaves),
            self.changes.ready.eq(self.groups.valid & left.any() & (~ends | self.merged.ready)),
            # The last change of a group is inserted in the cycle in which the group is output.
            merged.group.eq(number),
            merged.last.eq(group.last),
            self.active.eq(group.active),
        ]
        for lane in range(lanes):
            # Earlier changes of a group are held until its last one arrives.
            held = Signal(CHANGE, name=f"held_{lane}", reset_less=True)
            for field, whole in (("mode", "modes"), ("count", "counts")):
                kept = Mux(given[lane], held[field], group[whole][lane])
                m.d.comb += merged[whole][lane].eq(Mux(lowest[lane], change[field], kept))
            with m.If(self.changes.valid & self.changes.ready & lowest[lane]):
                m.d.sync += held.eq(change)
        with m.If(leaves):
            m.d.sync += [given.eq(0), number.eq(Mux(group.last, 0, number + 1))]
        with m.Elif(self.changes.valid & self.changes.ready):
            m.d.sync += given.eq(given | lowest)
        return m
