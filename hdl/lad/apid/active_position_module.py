"""LAD's active position identification: whose scores left their mode's interval."""

from typing import Annotated, Any

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.lad.apid.interval_check import IntervalCheck
from hdl.lad.apid.position_drain import PositionDrain
from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.group_walk import walk_groups
from hdl.lad.interval_table import COUNT_BITS, FIVE, TABLES, IntervalTable
from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import Named, Parameters, Range, parameter_object, require
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@parameter_object
class ActivePositionModuleParameters(Parameters):
    """Dimensions and pipeline stages of an active position module.

    `docs/lad/apid/active_position_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    lanes : int
        Positions looked at in a cycle.
    capacity : int
        Positions of a step at most.
    recent : int
        Latest positions, which are always active.
    table : IntervalTable
        The intervals.
    add_stages : int
        Register stages of the subtraction.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, Range(1, 32, "positions")] = 12
    capacity: Annotated[int, Range(2, 1 << 16, "positions")] = 4096
    recent: Annotated[int, Range(1, 64, "positions")] = 16
    table: Annotated[IntervalTable, Named(TABLES)] = FIVE
    add_stages: Annotated[int, Range(1, 4, "stages")] = 2

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        known = isinstance(self.table, IntervalTable)
        require(known, "table must be an IntervalTable", self.table)

    @property
    def groups(self) -> int:
        """Transfers of a step of `capacity` positions."""
        return -(-self.capacity // self.lanes)

    @property
    def position_shape(self) -> Any:
        """Shape of a position."""
        return unsigned((self.capacity - 1).bit_length())

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of the stream of steps."""
        return data.StructLayout({"length": range(self.capacity + 1), "maximum": FP16})

    @property
    def group_layout(self) -> data.StructLayout:
        """Payload of the stream of scores."""
        return data.StructLayout(
            {
                "scores": data.ArrayLayout(FP16, self.lanes),
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
            }
        )

    @property
    def counts_layout(self) -> data.StructLayout:
        """Payload of the stream of counts."""
        return data.StructLayout(
            {
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "active": self.lanes,
                "last": 1,
            }
        )

    @property
    def entry_layout(self) -> data.StructLayout:
        """Of a group with an active position: what the FIFO keeps."""
        return data.StructLayout(
            {
                "base": self.position_shape,
                "active": self.lanes,
                "recent": self.lanes,
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
                "graduates": 1,
                "last": 1,
            }
        )

    @property
    def position_layout(self) -> data.StructLayout:
        """Payload of the stream of active positions."""
        return data.StructLayout(
            {
                "position": self.position_shape,
                "mode": MODE_BITS,
                "count": COUNT_BITS,
                "recent": 1,
                "graduates": 1,
                "last": 1,
            }
        )


class ActivePositionModule(Unit):
    """Compare each position's score with the interval of its mode, `lanes` positions a cycle.

    The active position FIFO keeps a group's active lanes as bits, and only of groups that have any:
    so it takes `lanes` positions a cycle, gives them in ascending order, and is as deep as a step
    has groups, whatever is active.

    **Latency** `add_stages` + 1 cycles from a group to its counts, two more to its first position.
    **Throughput** `lanes` positions a cycle, also from step to step; one active position a cycle.

    **Numerics** ``x = score - maximum`` is rounded to FP16; a position is active unless
    ``lower[mode] < x <= upper[mode]``, with no lower bound for the first interval and no upper one
    for the last. A NaN is active. A mode beyond the table counts as the last one. Counts end at
    4095. LAD, Section IV-B (3).

    Parameters
    ----------
    parameters : ActivePositionModuleParameters
        Dimensions.

    Members
    -------
    steps : In(stream)
        A step's `length`, at least 1 and at most `capacity`, and the `maximum` of its scores.
    groups : In(stream)
        `scores`, `modes` and `counts` of the next `lanes` positions; of the last group of a step
        only those below `length` are looked at.
    counts : Out(stream)
        For each group the counts, one more for those of its positions that are not active; the
        `modes` as they came, which lanes are `active`, and `last` with a step's last.
    positions : Out(stream)
        A step's active positions, ascending, with `mode` and `count`; whether it is among the
        `recent` latest, whether it `graduates`, being the oldest of as many; `last` with the step's
        last, which is always its newest position.

    Raises
    ------
    ValueError
        By `ActivePositionModuleParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Say of each group which lanes count, compare, and part counts from positions."""
        m = Module()
        p = self.parameters
        m.submodules.fifo = fifo = MemoryFifo(shape=p.entry_layout, depth=max(p.groups, 2))
        m.submodules.drain = drain = PositionDrain(
            lanes=p.lanes, entry=p.entry_layout, position=p.position_layout
        )
        # Groups go in at full rate, positions come out one by one.
        connect_streams(m, fifo.sink, drain.entries)
        connect_streams(m, drain.positions, self.positions)

        # A group waits as a whole: its lanes are one line of registers with one enable.
        move, taken = Signal(), Signal()
        entry, present = self._entry(m, taken)
        m.d.comb += [
            taken.eq(self.steps.valid & self.groups.valid & move),
            self.groups.ready.eq(self.steps.valid & move),
            # The step's length and maximum stand until its last group.
            self.steps.ready.eq(taken & entry.last),
        ]
        outside = self._outside(m, move)

        # Beside the subtraction and the comparison: whose they are, and the counts as they were.
        beside = Signal(data.StructLayout({"entry": p.entry_layout, "present": p.lanes}))
        m.d.comb += [
            beside.entry.eq(entry),
            beside.present.eq(present),
        ]
        latency = p.add_stages + 1
        ended = delay_line(m, beside, latency, name="beside", enable=move)[-1]
        valid = delay_line(m, taken, latency, name="valid", enable=move, reset=True)[-1]
        # The latest positions are in no cache: active whatever was compared.
        active = ended.present & (ended.entry.recent | Cat(outside))
        # A group without an active position needs no place in the FIFO.
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
            # Active positions are counted by the next module, which knows their interval.
            more = ended.present[lane] & ~active[lane] & ~count.all()
            m.d.comb += self.counts.payload.counts[lane].eq(count + more)
        return m

    def _entry(self, m: Module, taken: Value) -> tuple[Any, Value]:
        """Return what the group is by its place in the step, and which of its lanes are there."""
        p = self.parameters
        walk = walk_groups(m, p, length=self.steps.payload.length, taken=taken)
        remaining = walk.remaining
        entry, present = Signal(p.entry_layout), Signal(p.lanes)
        m.d.comb += [
            entry.base.eq(walk.base),
            entry.modes.eq(self.groups.payload.modes),
            entry.counts.eq(self.groups.payload.counts),
            entry.last.eq(walk.ends),
            present.eq(Cat(remaining > lane for lane in range(p.lanes))),
            entry.recent.eq(Cat(remaining <= lane + p.recent for lane in range(p.lanes)) & present),
            entry.graduates.eq((remaining >= p.recent) & (remaining < p.recent + p.lanes)),
        ]
        return entry, present

    def _outside(self, m: Module, move: Value) -> list[Value]:
        """Return of each lane whether its score is outside its mode's interval."""
        p = self.parameters
        group, outside = self.groups.payload, []
        for lane in range(p.lanes):
            m.submodules[f"subtract_{lane}"] = subtract = FloatAdd(
                subtractor=True, stages=p.add_stages, enable=True
            )
            m.submodules[f"check_{lane}"] = check = IntervalCheck(table=p.table)
            # The table is asked when the difference is there.
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
