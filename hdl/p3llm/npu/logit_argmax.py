"""The argmax of the logits of each request."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.nonlinear.argmax import Argmax
from hdl.p3llm.npu.number_lanes import NumberLanesParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.unit import Unit


class LogitArgmax(Unit):
    """Compare the pieces of the requests' logits as they are computed.

    Ties resolve to the lowest token.

    **Latency** that of `Argmax` from `predict` to the prediction. **Throughput** one slice per
    cycle. **Numerics** as `Argmax`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system; with a vocabulary.

    Members
    -------
    logits : In(stream)
        `values` in binary32, and `last`, which is not used; always ready.
    request : In
        With several requests in flight: that of the logits, and of the prediction.
    predict : In(1)
        Output the prediction of the request; the next logits are those of its next token.
    predictions : Out(stream)
        The `token` with the largest logit, and this logit as `sum`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        logits = NumberLanesParameters(lanes=p.lanes).result_layout
        super().__init__(
            {
                "logits": In(stream.Signature(logits)),
                **({"request": In(ceil_log2(p.in_flight))} if p.in_flight > 1 else {}),
                "predict": In(1),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Mark the first slice of each request; a slice without values ends its row."""
        m = Module()
        p, logits, predictions = self.parameters, self.logits, self.predictions
        m.submodules.argmax = argmax = Argmax(parameters=p.argmax)
        slices, found = argmax.slices, argmax.results.payload
        # The first slice of a row is the one after the request's last prediction.
        begins = Signal(p.in_flight, init=-1)
        own = begins.bit_select(self.request, 1) if p.in_flight > 1 else begins
        m.d.comb += [
            logits.ready.eq(1),
            slices.valid.eq(logits.valid | self.predict),
            slices.payload["values"].eq(logits.payload["values"]),
            slices.payload.count.eq(Mux(self.predict, 0, p.lanes)),
            slices.payload.first.eq(own),
            slices.payload.last.eq(self.predict),
            predictions.valid.eq(argmax.results.valid & found.last),
            predictions.payload.token.eq(found.index),
            predictions.payload["sum"].eq(found.value),
            argmax.results.ready.eq(predictions.ready | ~found.last),
        ]
        if p.in_flight > 1:
            m.d.comb += slices.payload.context.eq(self.request)
        with m.If(slices.valid & slices.ready):
            m.d.sync += own.eq(slices.payload.last)
        return m
