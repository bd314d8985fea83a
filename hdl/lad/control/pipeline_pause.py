"""Where the attention pipeline may stop, so that other layers have the vector units."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.lad.control.step_slots import SLOTS
from hdl.unit import Unit


class PipelinePause(Unit):
    """Stop the pipeline between stage 4 and stage 5, and say when no vector unit works for it.

    Steps that have begun pass stage 2, which hands what it finds on; those that stage 5 has begun
    pass stage 6 too. All others stay where they are, with everything that is fetched for them,
    until nobody wants the vector units any more. Stages 3 and 4 need none and go on.

    **Latency** `idle` a cycle behind what ends last. **Throughput** a step a cycle.

    Members
    -------
    wanted : In(1)
        Others want the vector units, or have them; no step begins meanwhile.
    begun, scored : In(1)
        A step begins; one has passed stage 2.
    identified, computed : In(1)
        A step waits for stage 5, and for stage 6.
    identifies, computes : Out(1)
        It is shown there, and stays so until it is taken.
    parted, ended : In(1)
        Stage 5 takes its step, its last position being under way; stage 6, its output being there.
    idle : Out(1)
        No vector unit works for the pipeline, and none begins while they are wanted.
    """

    def __init__(self) -> None:
        inputs = ("wanted", "begun", "scored", "identified", "computed", "parted", "ended")
        outputs = ("identifies", "computes", "idle")
        super().__init__({name: In(1) for name in inputs} | {name: Out(1) for name in outputs})

    def elaborate(self, platform: Any) -> Module:
        """Count steps in stage 2, and those that stages 5 and 6 have begun and not both ended."""
        m = Module()
        scoring, apart = Signal(range(SLOTS + 1)), Signal(range(SLOTS + 1))
        opened, stops, enters = Signal(), Signal(), Signal()
        m.d.comb += [
            # What stage 2 gives needs room behind it: nothing stops before it is empty.
            stops.eq(self.wanted & (scoring == 0)),
            self.identifies.eq(self.identified & (opened | ~stops)),
            # Both see a step at once, and stage 5 is done with the one before earlier: it is never
            # behind. What it has begun is let in, for it does not end alone.
            self.computes.eq(self.computed & (~stops | (apart != 0))),
            enters.eq(self.identifies & ~opened),
            self.idle.eq((scoring == 0) & (apart == 0)),
        ]
        m.d.sync += [
            scoring.eq(scoring + self.begun - self.scored),
            # Stage 5 runs ahead of stage 6, by which its steps are counted off.
            apart.eq(apart + enters - self.ended),
            opened.eq((opened | enters) & ~self.parted),
        ]
        return m
