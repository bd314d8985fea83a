"""Predictions of the LM head, whose sums are compared instead of rounded."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class Predictor(Unit):
    """Offer the argmax when the sums of all tokens of the vocabulary have been compared.

    **Latency** 1 cycle from the last operation's end. **Throughput** one prediction at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator, with a vocabulary.

    Members
    -------
    ended : In(1)
        The last result of an operation of the LM head is aligned.
    largest : In
        As in `MatrixUnit`.
    predictions : Out(stream)
        As in `Kelle`.
    finished : Out(1)
        The prediction is transferred.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "ended": In(1),
                "largest": In(p.array.largest_layout),
                "predictions": Out(stream.Signature(p.prediction_layout)),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the operations of the LM head."""
        m = Module()
        p, predictions = self.parameters, self.predictions
        compared = Signal(p.head_bits)
        last = compared == p.vocabulary_operations - 1
        m.d.comb += [
            predictions.payload.token.eq(self.largest.number),
            predictions.payload.sum.eq(self.largest.total),
            self.finished.eq(predictions.valid & predictions.ready),
        ]
        with m.If(self.ended):
            m.d.sync += compared.eq(Mux(last, 0, compared + 1))
        # The aligned results are later than the totals, so that the last total has been compared.
        with m.If(self.ended & last):
            m.d.sync += predictions.valid.eq(1)
        with m.Elif(predictions.ready):
            m.d.sync += predictions.valid.eq(0)
        return m
