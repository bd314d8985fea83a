"""Progress of a step: counters of completed heads, incremented by the last result of each.

Section 6 of the paper: an operation begins when its operands are available.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class StepProgress(Unit):
    """Count what is complete in a step. Heads complete in order, so that a count identifies them.

    **Latency** 1 cycle from an input to its count. **Throughput** one event of each kind per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins: all counts become 0.
    ended, of_last_token : In
        As in `ResultRouter`.
    placed : In(1)
        An arriving token receives its slot in a head.
    weighted : In(1)
        The probabilities of a head are complete.
    multiplied : In(1)
        A slice of the feed-forward block's products is complete for all tokens.
    counts : Out
        Heads with their `queries`, `keys`, `values`; heads for all tokens that are `placed`,
        `weighted`, and `scored` by their token; heads that have `attended` for all tokens; slices
        that are `multiplied`.
    finished : Out(1)
        The results of the step are complete.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        heads = ("queries", "keys", "values", "placed", "weighted", "scored", "attended")
        counts = {name: p.count_shape for name in heads} | {
            "multiplied": bits_for(p.intermediate_slices)
        }
        super().__init__(
            {
                "start": In(1),
                "ended": In(len(Operation)),
                "of_last_token": In(1),
                "placed": In(1),
                "weighted": In(1),
                "multiplied": In(1),
                "counts": Out(data.StructLayout(counts)),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count each event of the step."""
        m = Module()
        p, ended = self.parameters, self.ended
        outputs = Signal(p.count_shape)
        m.d.comb += self.finished.eq(outputs == p.heads)
        for count, event in (
            (self.counts.queries, ended[Operation.QUERY.value]),
            (self.counts.keys, ended[Operation.KEY.value]),
            (self.counts["values"], ended[Operation.VALUE.value]),
            (self.counts.placed, self.placed),
            (self.counts.weighted, self.weighted),
            (self.counts.scored, ended[Operation.OWN.value]),
            (self.counts.attended, ended[Operation.ATTEND.value] & self.of_last_token),
            (self.counts.multiplied, self.multiplied),
            (outputs, ended[Operation.DOWN.value]),
        ):
            with m.If(self.start):
                m.d.sync += count.eq(0)
            with m.Elif(event):
                m.d.sync += count.eq(count + 1)
        return m
