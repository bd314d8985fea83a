"""Output stage of a processing element: requantisation and the output register file."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.arith.saturating_add import saturate
from hdl.meadow.tile.element_parameters import (
    HYBRID,
    OPERAND,
    ElementParameters,
    ElementParts,
    Mode,
)
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
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
    parts : ElementParts
        Output of sums, and output register file.

    Members
    -------
    settings : In
        As in the elements.
    sums : In(stream)
        A sum; `last` with the last one of a pass.
    results : Out(stream)
        As in the elements.
    """

    def __init__(self, *, parameters: ElementParameters, parts: ElementParts = HYBRID) -> None:
        self.parameters, self.parts = parameters, parts
        super().__init__(
            {
                "settings": In(parameters.settings_layout(parts)),
                "sums": In(stream.Signature(parameters.result_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Requantise every sum; select the sum or the INT8 result at the output."""
        m = Module()
        p, parts, settings, out = self.parameters, self.parts, self.settings, self.results
        m.submodules.requantiser = requantiser = Requantiser(
            width=p.sum_bits, stages=STAGES, enable=True
        )
        move, total = Signal(), self.sums.payload
        flags = Cat(self.sums.valid & self.sums.ready, total.last)
        valid, last = delay_line(m, flags, STAGES, name="flags", enable=move, reset=True)[-1]
        clamped = saturate(requantiser.result, OPERAND)[0] if parts.clamp else requantiser.result
        m.d.comb += [
            self.sums.ready.eq(move),
            requantiser.enable.eq(move),
            requantiser.a.eq(total.value),
            requantiser.scale.eq(settings.scale),
            requantiser.shift.eq(settings.shift),
            move.eq(~valid | out.ready),
            out.valid.eq(valid),
            out.payload.value.eq(clamped),
            out.payload.last.eq(last),
        ]
        wide = settings.wide if parts.sums else Const(0, 1)
        if parts.sums:
            # A delay line of the same latency holds the sums, so that results keep their order.
            held = delay_line(m, total.value, STAGES, name="sum", enable=move)[-1]
            with m.If(wide):
                m.d.comb += out.payload.value.eq(held)
        if parts.output_file:
            narrow = data.StructLayout({"value": OPERAND, "last": 1})
            m.submodules.output_file = kept = MemoryFifo(shape=narrow, depth=p.output_file)
            # The register file holds only INT8 results, since its words are too narrow for sums.
            with m.If((settings.mode == Mode.GEMM) & ~wide):
                m.d.comb += [
                    move.eq(~valid | kept.source.ready),
                    kept.source.valid.eq(valid),
                    kept.source.payload.value.eq(clamped),
                    kept.source.payload.last.eq(last),
                    kept.sink.ready.eq(out.ready),
                    out.valid.eq(kept.sink.valid),
                    out.payload.value.eq(kept.sink.payload.value),
                    out.payload.last.eq(kept.sink.payload.last),
                ]
        return m


def add_exit(
    m: Module,
    settings: data.View,
    results: stream.Interface,
    *,
    parameters: ElementParameters,
    parts: ElementParts,
) -> stream.Interface:
    """Add the exit of an element; return the stream of sums that it accepts.

    An element without a requantiser outputs its sums themselves.
    """
    if not parts.requantiser:
        return results
    m.submodules.exit = unit = ResultExit(parameters=parameters, parts=parts)
    m.submodules.sums_queue = queue = Fifo(shape=parameters.result_layout, depth=1)
    m.d.comb += unit.settings.eq(settings)
    connect_streams(m, queue.sink, unit.sums)
    connect_streams(m, unit.results, results)
    # The queue cuts the ready path from the results to the multipliers.
    return queue.source
