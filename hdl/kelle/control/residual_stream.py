"""A token's hidden state on its way through a layer: normalised before each block, grown behind it.

Section 2.1 of the paper: a layer is two blocks, each between a norm and a sum.
"""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.saturating_add import saturate
from hdl.kelle.control.output_buffer import OutputBuffer
from hdl.kelle.layouts import slice_write
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.row_norm import EPSILON_BITS, STATE
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class ResidualStream(Unit):
    """Hold a hidden state, add what the blocks make of it, and give it normalised to each.

    **Latency** 2 cycles from a sum to the state, and those of `RmsNorm`. **Throughput** one slice a
    cycle.

    **Numerics** those of `RmsNorm` with weights of 1; the state saturates at 16 bits.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    start : In(1)
        A step begins; nothing of the one before is left.
    epsilon : In
        As in `RmsNorm`; the same all through a step.
    hidden : In(stream)
        The state before the layer, slice by slice.
    sums : In
        Slices of a block's output, in the order of their addresses: the attention block's, and
        when its `normalised` slices have all been taken, the feed-forward block's.
    leaves : In(1)
        The slice is the feed-forward block's.
    inputs : Out(stream)
        The state, normalised: before the attention block, then before the feed-forward block.
    normalised : Out(stream)
        The former once more, for who recomputes the token later; each is taken with the other.
    outputs : Out(stream)
        The state behind the layer.
    pending : Out(1)
        Slices are held that have not been on offer.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = stream.Signature(p.slice_layout)
        super().__init__(
            {
                "start": In(1),
                "epsilon": In(EPSILON_BITS),
                "hidden": In(slices),
                "sums": In(slice_write(p, p.inputs)),
                "leaves": In(1),
                "inputs": Out(slices),
                "normalised": Out(slices),
                "outputs": Out(slices),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Take the state, then the sums; what is held is what the norm is given."""
        m = Module()
        p = self.parameters
        m.submodules.norm = norm = RmsNorm(parameters=p.norm)
        m.submodules.held = held = Memory(depth=p.inputs, width=p.slice_layout.size)
        taking, taken = Signal(), Signal(range(p.inputs))
        last_taken = taken == p.inputs - 1
        takes = self.hidden.valid & self.hidden.ready
        m.d.comb += self.hidden.ready.eq(taking & norm.states.ready)
        with m.If(takes):
            m.d.sync += [taken.eq(Mux(last_taken, 0, taken + 1)), taking.eq(~last_taken)]
        with m.If(self.start):
            m.d.sync += [taking.eq(1), taken.eq(0)]

        total, values = self._add(m, held)
        stays = total.strobe & ~total.leaves
        # A sum cannot wait, and need not: the row before it has left the norm, which has room.
        m.d.comb += [
            held.write_enable.eq(takes | stays),
            held.write_address.eq(Mux(taking, taken, total.address)),
            held.write_data.eq(Mux(taking, self.hidden.payload.as_value(), values.as_value())),
            norm.states.valid.eq((taking & self.hidden.valid) | stays),
            norm.states.payload["values"].eq(held.write_data),
            norm.states.payload.epsilon.eq(self.epsilon),
            norm.states.payload.last.eq(Mux(taking, last_taken, total.address == p.inputs - 1)),
            norm.weights.valid.eq(1),
        ]
        for weight in norm.weights.payload:
            m.d.comb += weight.eq(1 << p.norm.weight_fraction)
        self._give(m, norm)
        m.submodules.leaving = leaving = OutputBuffer(parameters=p)
        connect_streams(m, leaving.outputs, self.outputs)
        m.d.comb += [
            leaving.start.eq(self.start),
            leaving.slices.strobe.eq(total.strobe & total.leaves),
            leaving.slices.address.eq(total.address),
            leaving.slices["values"].eq(values),
            self.pending.eq(leaving.pending | self.outputs.valid),
        ]
        return m

    def _add(self, m: Module, held: Memory) -> tuple[data.View, data.View]:
        """Return the state with a block's slice added, two cycles after the slice came."""
        p = self.parameters
        layout = data.StructLayout({"strobe": 1, "leaves": 1, "address": self.sums.address.shape()})
        coming = Signal(layout)
        m.d.comb += [
            coming.strobe.eq(self.sums.strobe),
            coming.leaves.eq(self.leaves),
            coming.address.eq(self.sums.address),
            held.read_enable.eq(self.sums.strobe),
            held.read_address.eq(self.sums.address),
        ]
        block = delay_line(m, self.sums["values"], 1, name="block")[-1]
        state = data.View(p.slice_layout, held.read_data)
        values = Signal(p.slice_layout, name="total", reset_less=True)
        for i in range(p.rows):
            m.d.sync += values[i].eq(saturate(state[i] + block[i], STATE)[0])
        return delay_line(m, coming, 2, name="coming", reset=True)[-1], values

    def _give(self, m: Module, norm: RmsNorm) -> None:
        """Give normalised slices to the blocks, and those of the attention block outside, too."""
        results, first = norm.results, Signal()
        slice_ = results.payload["values"]
        # The one inside takes slices in its own time, whether they are on offer or not.
        m.d.comb += [
            self.inputs.payload.eq(slice_),
            self.normalised.payload.eq(slice_),
            self.inputs.valid.eq(results.valid & (~first | self.normalised.ready)),
            self.normalised.valid.eq(results.valid & first & self.inputs.ready),
            results.ready.eq(self.inputs.ready & (~first | self.normalised.ready)),
        ]
        with m.If(results.valid & results.ready & results.payload.last):
            m.d.sync += first.eq(0)
        with m.If(self.start):
            m.d.sync += first.eq(1)
