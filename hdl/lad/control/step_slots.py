"""Which head each stage works for, and which heads have to wait for their write-back."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.unit import Unit

SLOTS = 8
"""Steps in the pipeline at most: one a stage, and those that wait between two stages."""

ENDS = ("positions", "centres", "counters", "marks", "columns", "outputs")
"""What ends apart in each step, in order of the steps each."""


class StepSlots(Unit):
    """Give each step a slot when it begins, and free it when everything of it has ended.

    Steps pass the pipeline in order, so that each stage finds its step's head by counting its own
    ends. A head that is in a slot cannot begin: its step before is not written back.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions.

    Members
    -------
    head : In
        Of the step that wants to begin.
    free : Out(1)
        It may.
    begin : In(1)
        It does.
    ended : In(len(ENDS))
        Of a step, the part of that place in `ENDS` ends in this cycle.
    heads : Out.array(len(ENDS))
        The head whose part each works for.
    freed : Out(1)
        A step has ended, all of it.
    freed_head : Out
        Whose it was.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "head": In(p.head_shape),
                "free": Out(1),
                "begin": In(1),
                "ended": In(len(ENDS)),
                "heads": Out(p.head_shape).array(len(ENDS)),
                "freed": Out(1),
                "freed_head": Out(p.head_shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep a ring of heads; each part has a pointer into it."""
        m = Module()
        p = self.parameters
        heads = [Signal(p.head_shape, name=f"head_{slot}") for slot in range(SLOTS)]
        taken = [Signal(name=f"taken_{slot}") for slot in range(SLOTS)]
        # Steps since reset, modulo two rings: those that began, those that ended, and of each part
        # those that it has done. Parts end at different times, but each in the order of the steps.
        newest, oldest, *done = (
            Signal(range(2 * SLOTS), name=name) for name in ("newest", "oldest", *ENDS)
        )
        waits = Cat(
            there & (head == self.head) for there, head in zip(taken, heads, strict=True)
        ).any()
        m.d.comb += [
            self.free.eq(~waits & ~Array(taken)[_slot(newest)]),
            self.freed.eq(Cat(count != oldest for count in done).all()),
            self.freed_head.eq(Array(heads)[_slot(oldest)]),
        ]
        for index, count in enumerate(done):
            m.d.comb += self.heads[index].eq(Array(heads)[_slot(count)])
            m.d.sync += count.eq(count + self.ended[index])
        for slot in range(SLOTS):
            with m.If(self.begin & (_slot(newest) == slot)):
                m.d.sync += [heads[slot].eq(self.head), taken[slot].eq(1)]
            with m.If(self.freed & (_slot(oldest) == slot)):
                m.d.sync += taken[slot].eq(0)
        m.d.sync += [newest.eq(newest + self.begin), oldest.eq(oldest + self.freed)]
        return m


def _slot(step: Signal) -> Value:
    """Return the place in the ring of the step of a number."""
    return step[:-1]
