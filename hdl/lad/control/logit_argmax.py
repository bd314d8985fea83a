"""Groups of logits to the argmax: the token that each sample predicts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.parameters import LadParameters
from hdl.nonlinear.argmax import Argmax
from hdl.unit import Unit


class LogitArgmax(Unit):
    """Number the sums of the LM head, find each sample's argmax.

    The sums of all samples for one group of rows follow each other; each sample is a context of the
    argmax. The sums are in FP16, the widest format of the linear module, so that several can be
    equal.

    **Latency** ``ceil(log2(units)) + 1`` cycles from a sample's last sums to its prediction.
    **Throughput** one transfer of sums per cycle. **Numerics** those of `Argmax`.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions of the accelerator, with a vocabulary.

    Members
    -------
    sums : In(stream)
        From the linear module: for each group of rows the sums of all samples, one sample per
        transfer. Rows after the last token are ignored.
    predictions : Out(stream)
        For each sample in order the `token` and its `sum`.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "sums": In(stream.Signature(p.logits_layout)),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count groups and samples; output the results of the last group."""
        m = Module()
        p = self.parameters
        m.submodules.argmax = argmax = Argmax(parameters=p.argmax)
        logits, results = argmax.slices, argmax.results
        units, groups = p.tile.linear.units, p.pieces * p.piece_row_groups
        sample, group = Signal(range(p.batch)), Signal(range(groups))
        # Number of tokens from this group on; the last groups can have rows that are no tokens.
        left = Signal(range(p.vocabulary_size + 1), init=p.vocabulary_size)
        last_group = group == groups - 1
        m.d.comb += [
            logits.valid.eq(self.sums.valid),
            self.sums.ready.eq(logits.ready),
            logits.payload["values"].eq(self.sums.payload),
            logits.payload.count.eq(Mux(left > units, units, left)),
            logits.payload.first.eq(group == 0),
            logits.payload.last.eq(last_group),
            self.predictions.valid.eq(results.valid & results.payload.last),
            self.predictions.payload.token.eq(results.payload.index),
            self.predictions.payload.sum.eq(results.payload.value),
            results.ready.eq(self.predictions.ready | ~results.payload.last),
        ]
        if p.batch > 1:
            m.d.comb += logits.payload.context.eq(sample)
        with m.If(logits.valid & logits.ready):
            m.d.sync += sample.eq(sample + 1)
            with m.If(sample == p.batch - 1):
                m.d.sync += [sample.eq(0), group.eq(group + 1)]
                m.d.sync += left.eq(Mux(left > units, left - units, 0))
                with m.If(last_group):
                    m.d.sync += [group.eq(0), left.eq(p.vocabulary_size)]
        return m
