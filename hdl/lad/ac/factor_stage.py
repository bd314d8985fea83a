"""Correction factors of active positions, computed before their values arrive."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.correction_factor import CorrectionFactor
from hdl.lad.fp16 import FP16
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

QUEUED = 32
"""Transfers of factors that are queued while the module completes the previous step."""


class FactorStage(Unit):
    """Convert the coefficients of a step's positions into correction factors (the paper's cf).

    The factors are queued, so that the MD module does not wait while sums are combined and columns
    are updated.

    **Latency** `factor_stages` + 3 cycles. **Throughput** one transfer per cycle.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Lanes and register stages.

    Members
    -------
    begin : In(1)
        A step begins; `maximum` is constant from now on until the next one begins.
    maximum : In(16)
        The maximum of the step's scores, the paper's max_s, in FP16.
    coefficients : In(stream)
        As in `AttentionComputationModule`. Not ready from a step's last transfer until the next
        `begin`.
    factors : Out(stream)
        The factors with the coefficients that the update needs, in the same transfers.
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

    def elaborate(self, platform: object) -> Module:
        """Pass a step's coefficients through the operators to a FIFO."""
        m = Module()
        p = self.parameters
        m.submodules.fifo = fifo = Fifo(shape=p.factors_layout, depth=2)
        m.submodules.queue = queue = MemoryFifo(shape=p.factors_layout, depth=QUEUED)
        connect_streams(m, fifo.sink, queue.source)
        connect_streams(m, queue.sink, self.factors)
        taken, ended, move, opened = Signal(), Signal(), Signal(), Signal()
        payload = self.coefficients.payload
        m.d.comb += [
            # `ready` of the FIFO is a register's output, and can therefore enable the whole stage.
            move.eq(fifo.source.ready),
            self.coefficients.ready.eq(opened & move),
            taken.eq(self.coefficients.valid & opened & move),
            ended.eq(taken & payload.last),
        ]
        # The next step's coefficients need the next maximum: they are not accepted until it is
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
