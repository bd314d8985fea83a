"""Argmax of the LM head: the largest of the exact sums since the last prediction."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Combine, Kind, instruction_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.tile_parameters import HALVES
from hdl.nonlinear.argmax import Argmax
from hdl.unit import Unit


class Predictor(Unit):
    """Argmax over the sums of the GEMMs that are compared, which `PREDICT` outputs and clears.

    **Latency** that of `Argmax`. The last result of a block is output many cycles after its sums,
    so that the argmax is complete when the instruction ends. **Throughput** one pair of sums per
    cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of instructions, sums and predictions.

    Members
    -------
    now : In
        The current instruction.
    sums : In
        As in `HybridTile`.
    predict : In(1), predicted : Out(1)
        A prediction is requested; it is output in this cycle.
    predictions : Out(stream)
        As in `Meadow`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "now": In(instruction_layout(p)),
                "sums": In(p.tile.sums_layout),
                "predict": In(1),
                "predicted": Out(1),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Update the argmax with each pair of sums."""
        m = Module()
        now, sums, predictions = self.now, self.sums, self.predictions
        m.submodules.argmax = argmax = Argmax(parameters=self.parameters.argmax)
        slices, found = argmax.slices, argmax.results.payload
        compares = (now.kind == Kind.GEMM) & (now.combine == Combine.COMPARE)
        begins = Signal(init=1)
        m.d.comb += [
            slices.valid.eq(sums.strobe & compares),
            slices.payload["values"].eq(sums.pair),
            slices.payload.count.eq(HALVES),
            slices.payload.first.eq(begins),
            argmax.results.ready.eq(1),
            predictions.valid.eq(self.predict),
            predictions.payload.token.eq(found.index),
            predictions.payload.sum.eq(found.value),
            self.predicted.eq(self.predict & predictions.ready),
        ]
        with m.If(self.predicted):
            m.d.sync += begins.eq(1)
        with m.Elif(slices.valid):
            m.d.sync += begins.eq(0)
        return m
