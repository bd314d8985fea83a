"""Output stage of a processing element: requantisation and the output register file."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.arith.saturating_add import saturate
from hdl.meadow.tile.element_parameters import OPERAND, ElementParameters, Mode
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit

STAGES = 5
"""Cycles of the requantisation."""


class ResultExit(Unit):
    """Requantisation of sums to INT8, or bypass; buffers the results of GEMM mode.

    **Latency** 5 cycles, 7 through the register file. **Throughput** one sum per cycle.

    Parameters
    ----------
    parameters : ElementParameters
        Widths of sums and depth of the output register file.

    Members
    -------
    settings : In
        As in the elements.
    sums : In(stream)
        A sum; `last` with the last one of a pass.
    results : Out(stream)
        As in the elements.
    """

    def __init__(self, *, parameters: ElementParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "settings": In(parameters.settings_layout),
                "sums": In(stream.Signature(parameters.result_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Requantise every sum; select the sum or the INT8 result at the output."""
        m = Module()
        p, settings = self.parameters, self.settings
        narrow = data.StructLayout({"value": OPERAND, "last": 1})
        m.submodules.requantiser = requantiser = Requantiser(
            width=p.sum_bits, stages=STAGES, enable=True
        )
        m.submodules.output_file = kept = MemoryFifo(shape=narrow, depth=p.output_file)
        filed = Signal()
        move, valid = Signal(), Signal()
        total = self.sums.payload
        # Sums that are not requantised have a delay line of the same latency, which keeps order.
        flags = Cat(self.sums.valid & self.sums.ready, total.last)
        flags = delay_line(m, flags, STAGES, name="flags", enable=move, reset=True)[-1]
        wide = delay_line(m, total.value, STAGES, name="sum", enable=move)[-1]
        clamped, _saturated = saturate(requantiser.result, OPERAND)
        m.d.comb += [
            # The register file holds only INT8 results, since its words are too narrow for sums.
            filed.eq((settings.mode == Mode.GEMM) & ~settings.wide),
            valid.eq(flags[0]),
            move.eq(~valid | Mux(filed, kept.source.ready, self.results.ready)),
            self.sums.ready.eq(move),
            requantiser.enable.eq(move),
            requantiser.a.eq(total.value),
            requantiser.scale.eq(settings.scale),
            requantiser.shift.eq(settings.shift),
            kept.source.valid.eq(valid & filed),
            kept.source.payload.value.eq(clamped),
            kept.source.payload.last.eq(flags[1]),
            kept.sink.ready.eq(self.results.ready & filed),
        ]
        with m.If(filed):
            m.d.comb += [
                self.results.valid.eq(kept.sink.valid),
                self.results.payload.value.eq(kept.sink.payload.value),
                self.results.payload.last.eq(kept.sink.payload.last),
            ]
        with m.Else():
            m.d.comb += [
                self.results.valid.eq(valid),
                self.results.payload.value.eq(Mux(settings.wide, wide, clamped)),
                self.results.payload.last.eq(flags[1]),
            ]
        return m
