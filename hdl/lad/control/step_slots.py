"""Which head each stage works for, and which heads have to wait for their write-back."""

from typing import Any

from amaranth.hdl import Array, Module, Signal
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
        """Keep a ring of heads; each part has a pointer into it and a bit in every slot."""
        m = Module()
        p = self.parameters
        heads = [Signal(p.head_shape, name=f"head_{slot}") for slot in range(SLOTS)]
        taken = [Signal(name=f"taken_{slot}") for slot in range(SLOTS)]
        # Slots are given and freed in turns; in between each part ends when it likes.
        newest, oldest = Signal(range(SLOTS)), Signal(range(SLOTS))
        # What of a step has not ended yet: a bit a part, cleared by the part's own pointer.
        left = [Signal(len(ENDS), name=f"left_{slot}") for slot in range(SLOTS)]
        busy = [there & (head == self.head) for there, head in zip(taken, heads, strict=True)]
        waits = Signal()
        for one in busy:
            with m.If(one):
                m.d.comb += waits.eq(1)
        m.d.comb += self.free.eq(~waits & ~Array(taken)[newest])

        # Parts end at different times, but each in the order of the steps.
        pointers = [Signal(range(SLOTS), name=f"at_{name}") for name in ENDS]
        for index, pointer in enumerate(pointers):
            m.d.comb += self.heads[index].eq(Array(heads)[pointer])
            m.d.sync += pointer.eq(pointer + self.ended[index])
        for slot in range(SLOTS):
            for index, pointer in enumerate(pointers):
                with m.If(self.ended[index] & (pointer == slot)):
                    m.d.sync += left[slot][index].eq(0)
            with m.If(self.begin & (newest == slot)):
                m.d.sync += [
                    heads[slot].eq(self.head),
                    taken[slot].eq(1),
                    left[slot].eq((1 << len(ENDS)) - 1),
                ]
            with m.Elif(taken[slot] & (oldest == slot) & (left[slot] == 0)):
                m.d.sync += taken[slot].eq(0)
        m.d.sync += newest.eq(newest + self.begin)
        m.d.comb += [
            self.freed.eq(Array(taken)[oldest] & (Array(left)[oldest] == 0)),
            self.freed_head.eq(Array(heads)[oldest]),
        ]
        m.d.sync += oldest.eq(oldest + self.freed)
        return m
