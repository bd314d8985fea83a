"""Rows of logits to the argmax, one logit per cycle: the tokens that VEDA predicts."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.nonlinear.argmax import Argmax
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters


class LogitRows(Unit):
    """Serialise rows of logits before rounding, which could make several equal; find the argmax.

    The arrays output a row of sums in one cycle. It is captured, and enters the argmax serially
    while the next row is computed. For a block of tokens each row is output for one token after the
    other; each token is a context of the argmax.

    **Latency** `row` cycles from a row to its end, 2 more to the prediction. **Throughput** one row
    in as many cycles. The arrays take ``hidden_size`` cycles per row, and wait if that is less.

    **Numerics** those of `Argmax`, in the format of the sums.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator, with a vocabulary.

    Members
    -------
    row_ends : In(1)
        `row_sums` are valid in this cycle.
    row_sums : In(array)
        Sums of all arrays, one logit each.
    rows : In(stream)
        The latest sums are a row of logits; the payload is the last token of its block.
    predictions : Out(stream)
        For each token of a block, in order: the predicted next `token`, and its logit `sum`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "row_ends": In(1),
                "row_sums": In(p.row_sums_layout),
                "rows": In(stream.Signature(p.token_shape)),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift a row of logits into the argmax; output the results of complete vocabularies."""
        m = Module()
        p = self.parameters
        m.submodules.argmax = argmax = Argmax(parameters=p.argmax)
        logits, results = argmax.slices, argmax.results
        sums = Signal(p.row_sums_layout, reset_less=True)
        # Index of the row's first logit, and place of the next logit in the row.
        first, place = (
            Signal(range(p.vocabulary_rows * p.row_elements)),
            Signal(range(p.row_elements)),
        )
        token, index = Signal(p.token_shape), Signal.like(first)
        # After the vocabulary's last logit the row is padded.
        complete, row_ends = index == p.vocabulary_size - 1, Signal()
        m.d.comb += [
            index.eq(first + place),
            row_ends.eq(complete | (place == p.row_elements - 1)),
            logits.valid.eq(self.rows.valid),
            logits.payload["values"][0].eq(sums[0]),
            logits.payload.count.eq(1),
            logits.payload.first.eq(index == 0),
            logits.payload.last.eq(complete),
            self.rows.ready.eq(logits.ready & row_ends),
            self.predictions.valid.eq(results.valid & results.payload.last),
            self.predictions.payload.token.eq(results.payload.index),
            Value.cast(self.predictions.payload.sum).eq(results.payload.value),
            results.ready.eq(self.predictions.ready | ~results.payload.last),
        ]
        if p.block > 1:
            m.d.comb += logits.payload.context.eq(token)
        moves = logits.valid & logits.ready
        # Rows of other kinds are captured as well, but do not move.
        with m.If(self.row_ends):
            m.d.sync += sums.eq(self.row_sums)
        with m.Elif(moves):
            m.d.sync += Value.cast(sums).eq(Value.cast(sums) >> p.array.sum_format.width)
        with m.If(moves):
            m.d.sync += place.eq(Mux(row_ends, 0, place + 1))
            with m.If(row_ends):
                # The next token's row, then the next row of all tokens.
                m.d.sync += token.eq(token + 1)
                with m.If(token == self.rows.payload):
                    m.d.sync += [token.eq(0), first.eq(Mux(complete, 0, first + p.row_elements))]
        return m
