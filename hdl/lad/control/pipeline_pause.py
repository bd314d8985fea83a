"""Pause of the attention pipeline, during which other layers use the vector units."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.lad.control.step_slots import SLOTS
from hdl.unit import Unit


class PipelinePause(Unit):
    """Stop the pipeline between stages 4 and 5, and report when it uses no vector unit (IV-D).

    Steps that have begun complete stage 2, and steps that stage 5 has begun complete stage 6. All
    others are held in place with their fetched data until `wanted` is 0. Stages 3 and 4 use no
    vector unit and continue.

    **Latency** `idle` one cycle after the last step completes. **Throughput** one step per cycle.

    Members
    -------
    wanted : In(1)
        Other layers request or use the vector units; no step begins.
    begun, scored : In(1)
        A step begins; a step has completed stage 2.
    identified, computed : In(1)
        A step is ready to enter stage 5, or stage 6.
    identifies, computes : Out(1)
        The step may enter; constant until it does.
    parted, ended : In(1)
        Stage 5 has issued the last position of its step; stage 6 has computed its output.
    idle : Out(1)
        The pipeline uses no vector unit, and begins no operation while `wanted` is 1.
    """

    def __init__(self) -> None:
        inputs = ("wanted", "begun", "scored", "identified", "computed", "parted", "ended")
        outputs = ("identifies", "computes", "idle")
        super().__init__({name: In(1) for name in inputs} | {name: Out(1) for name in outputs})

    def elaborate(self, platform: object) -> Module:
        """Count the steps in stage 2, and those that are in stage 5 or 6."""
        m = Module()
        scoring, apart = Signal(range(SLOTS + 1)), Signal(range(SLOTS + 1))
        opened, stops, enters = Signal(), Signal(), Signal()
        m.d.comb += [
            # The results of stage 2 need room downstream: nothing is stopped before stage 2 is
            # empty.
            stops.eq(self.wanted & (scoring == 0)),
            self.identifies.eq(self.identified & (opened | ~stops)),
            # Both stages are offered a step in the same cycle, and stage 5 completes the previous
            # one first. Stage 6 admits every step that stage 5 has begun, because stage 5 depends
            # on it.
            self.computes.eq(self.computed & (~stops | (apart != 0))),
            enters.eq(self.identifies & ~opened),
            self.idle.eq((scoring == 0) & (apart == 0)),
        ]
        m.d.sync += [
            scoring.eq(scoring + self.begun - self.scored),
            # Stage 5 begins steps earlier than stage 6 completes them; the difference is in flight.
            apart.eq(apart + enters - self.ended),
            opened.eq((opened | enters) & ~self.parted),
        ]
        return m
