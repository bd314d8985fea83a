"""Pause of the attention pipeline, during which other layers use the vector units."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.lad.control.steps_in_flight import MOST_STEPS
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
    begun, eas_ended : In(1)
        A step begins; a step has completed stage 2.
    md_offered, ac_offered : In(1)
        A step is ready to enter stage 5, or stage 6.
    md_admitted, ac_admitted : Out(1)
        The step may enter; constant until it does.
    md_ended, ac_entered, ac_ended : In(1)
        Stage 5 has issued the last position of its step; a step enters stage 6; stage 6 has
        computed its output and its caches.
    idle : Out(1)
        The pipeline uses no vector unit, and begins no operation while `wanted` is 1.
    """

    def __init__(self) -> None:
        inputs = ("wanted", "begun", "eas_ended")
        inputs += ("md_offered", "md_ended", "ac_offered", "ac_entered", "ac_ended")
        outputs = ("md_admitted", "ac_admitted", "idle")
        super().__init__({name: In(1) for name in inputs} | {name: Out(1) for name in outputs})

    def elaborate(self, platform: object) -> Module:
        """Count the steps in stage 2, those that are in stage 5 or 6, and those before stage 6."""
        m = Module()
        in_eas, in_md_or_ac, before_ac = (
            Signal(range(MOST_STEPS + 1), name=name)
            for name in ("in_eas", "in_md_or_ac", "before_ac")
        )
        entered, stops, enters = Signal(), Signal(), Signal()
        m.d.comb += [
            # The results of stage 2 need room downstream: nothing is stopped before stage 2 is
            # empty.
            stops.eq(self.wanted & (in_eas == 0)),
            self.md_admitted.eq(self.md_offered & (entered | ~stops)),
            # Stage 6 admits every step that stage 5 has begun, because stage 5 depends on it. It
            # admits no other step, since it begins a step before the previous one ends.
            self.ac_admitted.eq(self.ac_offered & (before_ac != 0)),
            enters.eq(self.md_admitted & ~entered),
            self.idle.eq((in_eas == 0) & (in_md_or_ac == 0)),
        ]
        m.d.sync += [
            in_eas.eq(in_eas + self.begun - self.eas_ended),
            # Stage 5 begins steps earlier than stage 6 completes them; the difference is in flight.
            in_md_or_ac.eq(in_md_or_ac + enters - self.ac_ended),
            before_ac.eq(before_ac + enters - self.ac_entered),
            entered.eq((entered | enters) & ~self.md_ended),
        ]
        return m
