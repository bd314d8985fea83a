"""LAD's active position identification (APID) module: Section IV-B (3)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.apid.interval_check import IntervalCheck
from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.group_walk import GroupCursor, count_groups
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class ActivePositionModule(Unit):
    """Compare each position's score with the interval of its mode, `lanes` positions per cycle.

    An entry of the active position FIFO is a group's bit mask of active lanes; groups without an
    active position have no entry. The FIFO therefore accepts `lanes` positions per cycle, outputs
    them in ascending order, and never holds more entries than a step has groups.

    **Latency** `add_stages` + 1 cycles from a group to its counts, two more to its first position.
    **Throughput** `lanes` positions in per cycle, also across steps; one active position out per
    cycle.

    **Numerics** ``x = score - maximum`` is rounded to FP16. A position is active unless
    ``lower[mode] < x <= upper[mode]``; the first interval has no lower bound and the last one no
    upper bound. A NaN is active. A mode beyond the table counts as the last one. Counts saturate at
    4095. LAD, Section IV-B (3).

    Parameters
    ----------
    parameters : ActivePositionModuleParameters
        Lanes, slots, intervals and register stages.

    Members
    -------
    steps : In(stream)
        The `length` of a step, 1 to `slots` positions, and the `maximum` (the paper's max_s) of
        its scores.
    groups : In(stream)
        `scores`, `modes` and `counts` (the paper's cnt) of the next `lanes` positions. In the last
        group of a step, lanes at or above `length` are ignored.
    counts : Out(stream)
        The `counts` of each group, incremented for positions that are not active; the unchanged
        `modes`; the `active` lanes; `last` with the last group of a step.
    positions : Out(stream)
        The active positions of a step (the paper's J) in ascending order, each with `mode` and
        `count`. `recent` marks the latest positions, `graduates` the oldest of them in a full
        window, `last` the last position of the step, which is always the newest one.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `ActivePositionModuleParameters`.
    """

    def __init__(self, *, parameters: ActivePositionModuleParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "steps": In(stream.Signature(parameters.step_layout)),
                "groups": In(stream.Signature(parameters.group_layout)),
                "counts": Out(stream.Signature(parameters.counts_layout)),
                "positions": Out(stream.Signature(parameters.position_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Classify the lanes of each group, compare, and separate counts from active positions."""
        m = Module()
        p = self.parameters
        m.submodules.fifo = fifo = MemoryFifo(shape=p.entry_layout, depth=max(p.groups, 2))
        m.submodules.drain = drain = PositionDrain(
            lanes=p.lanes, entry=p.entry_layout, position=p.position_layout
        )
        # The FIFO accepts whole groups; positions are output one by one.
        connect_streams(m, fifo.sink, drain.entries)
        connect_streams(m, drain.positions, self.positions)

        # A group stalls as a whole: one enable drives the registers of all its lanes.
        move, taken = Signal(), Signal()
        cursor = count_groups(m, p, length=self.steps.payload.length, taken=taken)
        entry = self._entry(m, cursor)
        m.d.comb += [
            taken.eq(self.steps.valid & self.groups.valid & move),
            self.groups.ready.eq(self.steps.valid & move),
            # `steps` holds length and maximum until the last group of the step.
            self.steps.ready.eq(taken & entry.last),
        ]
        outside = self._outside(m, move)

        # Delayed in parallel with the subtraction and the comparison.
        beside = Signal(data.StructLayout({"entry": p.entry_layout, "present": p.lanes}))
        m.d.comb += [
            beside.entry.eq(entry),
            beside.present.eq(cursor.present),
        ]
        latency = p.add_stages + 1
        ended = delay_line(m, beside, latency, name="beside", enable=move)[-1]
        valid = delay_line(m, taken, latency, name="valid", enable=move, reset=True)[-1]
        # The latest positions are in no intermediate cache, hence always active.
        active = ended.present & (ended.entry.recent | Cat(outside))
        # A group without an active position needs no FIFO entry.
        room = fifo.source.ready | ~active.any()
        m.d.comb += [
            move.eq(~valid | (room & self.counts.ready)),
            self.counts.valid.eq(valid & room),
            self.counts.payload.last.eq(ended.entry.last),
            self.counts.payload.modes.eq(ended.entry.modes),
            self.counts.payload.active.eq(active),
            fifo.source.valid.eq(valid & active.any() & self.counts.ready),
            fifo.source.payload.eq(ended.entry),
            fifo.source.payload.active.eq(active),
        ]
        for lane, count in enumerate(ended.entry.counts):
            # The counters of active positions are incremented in the MD module, which computes
            # their interval.
            more = ended.present[lane] & ~active[lane] & ~count.all()
            m.d.comb += self.counts.payload.counts[lane].eq(count + more)
        return m

    def _entry(self, m: Module, cursor: GroupCursor) -> data.View:
        """Return the group's FIFO entry; the active lanes are set when they are known."""
        p, remaining = self.parameters, cursor.remaining
        entry = Signal(p.entry_layout)
        recent = Cat(remaining <= lane + p.recent for lane in range(p.lanes))
        m.d.comb += [
            entry.base.eq(cursor.base),
            entry.modes.eq(self.groups.payload.modes),
            entry.counts.eq(self.groups.payload.counts),
            entry.last.eq(cursor.ends),
            entry.recent.eq(recent & cursor.present),
            entry.graduates.eq((remaining >= p.recent) & (remaining < p.recent + p.lanes)),
        ]
        return entry

    def _outside(self, m: Module, move: Value) -> list[Value]:
        """Return per lane whether its score is outside the interval of its mode."""
        p = self.parameters
        group, outside = self.groups.payload, []
        for lane in range(p.lanes):
            m.submodules[f"subtract_{lane}"] = subtract = FloatAdd(
                subtractor=True, stages=p.add_stages, enable=True
            )
            m.submodules[f"check_{lane}"] = check = IntervalCheck(table=p.table)
            # The table is read when the difference is valid.
            mode = delay_line(m, group.modes[lane], p.add_stages, name=f"mode_{lane}", enable=move)
            m.d.comb += [
                Value.cast(subtract.a).eq(group.scores[lane]),
                Value.cast(subtract.b).eq(self.steps.payload.maximum),
                subtract.subtract.eq(1),
                subtract.enable.eq(move),
                check.difference.eq(Value.cast(subtract.result)),
                check.mode.eq(mode[-1]),
                check.enable.eq(move),
            ]
            outside.append(check.outside)
        return outside
