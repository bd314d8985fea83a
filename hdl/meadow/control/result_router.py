"""Route of the tile's results: to the combiner or to external memory."""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Combine, Kind, instruction_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.unit import Unit


class ResultRouter(Unit):
    """Route of results to the combiner or to the cache, or discard of those that are compared.

    **Latency** 0 cycles. **Throughput** one word per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of instructions and results.

    Members
    -------
    now : In
        The current instruction.
    results : In(stream)
        Results of the tile.
    combined : Out(stream)
        Results for the combiner.
    cached : Out(stream)
        Results for external memory: keys, values, scores and probabilities.
    discarded : Out(1)
        The last result of a block is discarded in this cycle.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        p = parameters
        results = stream.Signature(p.tile.result_layout)
        super().__init__(
            {
                "now": In(instruction_layout(p)),
                "results": In(results),
                "combined": Out(stream.Signature(p.tile.result_word_layout)),
                "cached": Out(results),
                "discarded": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the consumer."""
        m = Module()
        now, results = self.now, self.results
        gemm = now.kind == Kind.GEMM
        m.d.comb += self.combined.payload.eq(results.payload.word)
        m.d.comb += self.cached.payload.eq(results.payload)
        with m.If((gemm & now.cached) | (now.kind == Kind.SOFTMAX)):
            m.d.comb += [self.cached.valid.eq(results.valid), results.ready.eq(self.cached.ready)]
        with m.Elif(gemm & (now.combine == Combine.COMPARE)):
            # The sums were compared before they were rounded to results.
            m.d.comb += [
                results.ready.eq(1),
                self.discarded.eq(results.valid & results.payload.last),
            ]
        with m.Else():
            m.d.comb += [
                self.combined.valid.eq(results.valid),
                results.ready.eq(self.combined.ready),
            ]
        return m
