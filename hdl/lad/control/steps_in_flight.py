"""Heads of the steps in flight; a head waits for the write-back of its previous step."""

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.lad.parameters import LadTileParameters
from hdl.unit import Unit

MOST_STEPS = 8
"""Largest number of steps in flight: one per stage, and two between stages."""

ENDS = ("positions", "centres", "counters", "marks", "columns", "outputs")
"""Streams of a step that end at different times, in the order of `ended` and `heads`."""


class StepsInFlight(Unit):
    """Assign a slot to each step when it begins, and free it when all its streams have ended.

    Steps pass the pipeline in order: each stream finds its current head by counting its own ends. A
    head that has a slot cannot begin a step, since its previous step is not written back yet.

    Parameters
    ----------
    parameters : LadTileParameters
        Shape of a head's number.

    Members
    -------
    head : In
        Head of the next step.
    free : Out(1)
        Its step may begin.
    begin : In(1)
        Its step begins.
    ended : In(len(ENDS))
        A step's stream of that index in `ENDS` ends in this cycle.
    heads : Out.array(len(ENDS))
        Head whose step each of the streams belongs to.
    freed : Out(1)
        All streams of a step have ended.
    freed_head : Out
        Head of that step.
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

    def elaborate(self, platform: object) -> Module:
        """Keep a ring of heads, with one pointer per stream."""
        m = Module()
        p = self.parameters
        heads = [Signal(p.head_shape, name=f"head_{slot}") for slot in range(MOST_STEPS)]
        taken = [Signal(name=f"taken_{slot}") for slot in range(MOST_STEPS)]
        # Counters of steps modulo two rings: begun, completed, and completed per stream. Streams
        # end at different times, but each one ends in the order of the steps.
        newest, oldest, *done = (
            Signal(range(2 * MOST_STEPS), name=name) for name in ("newest", "oldest", *ENDS)
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
        for slot in range(MOST_STEPS):
            with m.If(self.begin & (_slot(newest) == slot)):
                m.d.sync += [heads[slot].eq(self.head), taken[slot].eq(1)]
            with m.If(self.freed & (_slot(oldest) == slot)):
                m.d.sync += taken[slot].eq(0)
        m.d.sync += [newest.eq(newest + self.begin), oldest.eq(oldest + self.freed)]
        return m


def _slot(step: Signal) -> Value:
    """Return the index in the ring of a step's number."""
    return step[:-1]
