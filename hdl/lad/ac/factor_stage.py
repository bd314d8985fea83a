"""Correction factors of active positions, before their values come."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.correction_factor import CorrectionFactor
from hdl.lad.fp16 import FP16
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class FactorStage(Unit):
    """Turn the coefficients of a step's positions into factors, ahead of the vectors.

    **Latency** `factor_stages` cycles. **Throughput** a transfer a cycle.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.

    Members
    -------
    begin : In(1)
        A step begins, with the `maximum` that stands from now on.
    maximum : In(16)
        Of the step's scores.
    coefficients : In(stream)
        As the module's; refused behind a step's last transfer until the next begins.
    factors : Out(stream)
        What they become.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "begin": In(1),
                "maximum": In(FP16),
                "coefficients": In(stream.Signature(p.coefficients_layout)),
                "factors": Out(stream.Signature(p.factors_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Let a step's coefficients through, and hold them until they are fetched."""
        m = Module()
        p = self.parameters
        m.submodules.fifo = fifo = Fifo(shape=p.factors_layout, depth=2)
        connect_streams(m, fifo.sink, self.factors)
        taken, ended, move, opened = Signal(), Signal(), Signal(), Signal()
        payload = self.coefficients.payload
        m.d.comb += [
            # The FIFO's ready is out of a register: the whole stage may hang on it.
            move.eq(fifo.source.ready),
            self.coefficients.ready.eq(opened & move),
            taken.eq(self.coefficients.valid & opened & move),
            ended.eq(taken & payload.last),
        ]
        # The next step's coefficients belong to another maximum: they wait outside until it is
        # known.
        m.d.sync += opened.eq((opened | self.begin) & ~ended)
        result = fifo.source.payload
        valid = delay_line(m, taken, p.factor_stages, name="valid", enable=move, reset=True)[-1]
        waited = delay_line(m, payload, p.factor_stages, name="waited", enable=move)[-1]
        m.d.comb += [
            fifo.source.valid.eq(valid & move),
            result.present.eq(waited.present),
            result.last.eq(waited.last),
        ]
        for lane in range(p.lanes):
            m.submodules[f"factor_{lane}"] = factor = CorrectionFactor(parameters=p)
            m.d.comb += [
                factor.enable.eq(move),
                factor.maximum.eq(self.maximum),
                factor.x.eq(payload.lanes[lane].alpha_score),
                factor.slope.eq(payload.lanes[lane].alpha),
                factor.intercept.eq(payload.lanes[lane].beta),
                result.lanes[lane].factor.eq(factor.result),
                result.lanes[lane].alpha.eq(waited.lanes[lane].alpha),
                result.lanes[lane].beta.eq(waited.lanes[lane].beta),
                result.lanes[lane].update.eq(waited.lanes[lane].update),
            ]
        return m
