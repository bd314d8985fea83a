"""Residual stream of a layer: hidden states, normalised before each block and updated after it.

Section 2.1 of the paper: a layer has two blocks, each with a norm before it and a residual addition
after it.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.saturating_add import saturate
from hdl.kelle.control.output_buffer import OutputBuffer
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.layer_norm import LayerNorm, LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.row_norm import EPSILON_BITS, STATE
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class Sums:
    """Number of slices of a block's output that have been added to all states."""

    kept: Signal  # Of the attention block, whose sums remain.
    left: Signal  # Of the feed-forward block, whose sums are output.


class ResidualStream(Unit):
    """Store hidden states, add the blocks' outputs, and give each block its normalised input.

    **Latency** 2 cycles from a sum to the state, 2 to the norm, and those of `RmsNorm` or
    `LayerNorm`.
    **Throughput** one slice per cycle in, and one per cycle out as far as the norm overlaps rows.

    **Numerics** as `RmsNorm` or `LayerNorm` with weights of 1 and biases of 0; the state saturates
    at 16 bits.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins; the previous step has finished.
    predicts : In(1)
        Valid with `start`: the states are the output of the last layer. Nothing is added to them;
        `inputs` alone outputs them, normalised.
    epsilon : In
        As in the norm; constant during a step.
    last_token : In
        Index of the step's last token, constant from the cycle after `start`.
    hidden : In(stream)
        Input states of the layer, slice by slice, token by token.
    sums : In
        Slices of a block's output, the same slice of each token before the next slice: first
        those of the attention block; after all `normalised` slices have been transferred, those of
        the feed-forward block, with the input `leaves` = 1.
    inputs : Out(stream)
        Normalised states: inputs of the attention block, then inputs of the feed-forward block.
    normalised : Out(stream)
        Copy of the attention block's inputs, from which a token may be recomputed later; both
        streams transfer a slice in the same cycle.
    outputs : Out(stream)
        Output states of the layer.
    pending : Out(1)
        The unit holds output slices that have not been transferred.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = stream.Signature(p.slice_layout)
        super().__init__(
            {
                "start": In(1),
                "predicts": In(1),
                "last_token": In(p.token_shape),
                "epsilon": In(EPSILON_BITS),
                "hidden": In(slices),
                "sums": In(p.slice_write(p.step_tokens * p.hidden_slices)),
                "leaves": In(1),
                "inputs": Out(slices),
                "normalised": Out(slices),
                "outputs": Out(slices),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Take the states, then the sums; the norm reads what has been written."""
        m = Module()
        p = self.parameters
        depth = p.step_tokens * p.hidden_slices
        m.submodules.norm = norm = self._norm(m)
        m.submodules.held = held = Memory(depth=depth, width=p.slice_layout.size)
        count = p.of_tokens(self.last_token, p.hidden_slices)
        taking, taken = Signal(), Signal(range(depth))
        takes = self.hidden.valid & self.hidden.ready
        m.d.comb += self.hidden.ready.eq(taking)
        with m.If(takes):
            last = taken == count - 1
            m.d.sync += [taken.eq(Mux(last, 0, taken + 1)), taking.eq(~last)]
        with m.If(self.start):
            m.d.sync += [taking.eq(1), taken.eq(0)]

        total, values = self._add(m, held)
        stays = total.strobe & ~total.leaves
        m.d.comb += [
            held.write_enable.eq(takes | stays),
            held.write_address.eq(Mux(taking, taken, total.address)),
            held.write_data.eq(Mux(taking, self.hidden.payload.as_value(), values.as_value())),
        ]
        sums = self._count_sums(m, total)
        self._normalise(m, norm, held, Mux(taking, taken, depth), sums.kept)
        self._give(m, norm)
        m.submodules.leaving = leaving = OutputBuffer(parameters=p)
        connect_streams(m, leaving.outputs, self.outputs)
        m.d.comb += [
            leaving.start.eq(self.start),
            leaving.last_token.eq(self.last_token),
            leaving.slices.strobe.eq(total.strobe & total.leaves),
            leaving.slices.address.eq(total.address),
            leaving.slices["values"].eq(values),
            leaving.complete.eq(sums.left),
            self.pending.eq(leaving.pending | self.outputs.valid),
        ]
        return m

    def _norm(self, m: Module) -> RmsNorm | LayerNorm:
        """Return the norm, with weights of 1: the matrices contain the norm's weights."""
        norm = self.parameters.norm
        if isinstance(norm, LayerNormParameters):
            unit = LayerNorm(parameters=norm)
            m.d.comb += unit.affine.valid.eq(1)
            weights = unit.affine.payload.weights
        else:
            unit = RmsNorm(parameters=norm)
            m.d.comb += unit.weights.valid.eq(1)
            weights = unit.weights.payload
        for weight in weights:
            m.d.comb += weight.eq(1 << norm.weight_fraction)
        return unit

    def _add(self, m: Module, held: Memory) -> tuple[data.View, data.View]:
        """Return the state with a block's slice added, two cycles after the slice arrives."""
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

    def _count_sums(self, m: Module, total: data.View) -> Sums:
        """Count the slices of each block's sums that are complete for all tokens."""
        p = self.parameters
        # A slice is complete when that of the last token has been added.
        ends = total.strobe
        if p.step_tokens > 1:
            ends &= total.address >= self.last_token * p.hidden_slices
        sums = Sums(
            kept=Signal(range(p.hidden_slices + 1), name="kept"),
            left=Signal(range(p.hidden_slices + 1), name="left"),
        )
        for count, whose in ((sums.kept, ~total.leaves), (sums.left, total.leaves)):
            m.d.sync += count.eq(Mux(self.start, 0, count + (ends & whose)))
        return sums

    def _normalise(
        self, m: Module, norm: RmsNorm | LayerNorm, held: Memory, written: Value, kept: Signal
    ) -> None:
        """Send the norm the states before the attention block, then those after it, row by row."""
        p = self.parameters
        depth = p.step_tokens * p.hidden_slices
        count = p.of_tokens(self.last_token, p.hidden_slices)
        # A copy of the states: the sums need every cycle of the other memory's read port.
        m.submodules.waiting = waiting = Memory(depth=depth, width=p.slice_layout.size)
        # Between steps, all slices have been sent.
        given = Signal(range(depth + 1), init=depth)
        grown, slice_ = Signal(), Signal(range(p.hidden_slices))
        there, reads = Signal(), Signal()
        states, last = norm.states, slice_ == p.hidden_slices - 1
        move = ~states.valid | states.ready
        m.d.comb += [
            there.eq((given != count) & Mux(grown, slice_ < kept, given < written)),
            reads.eq(move & there),
            waiting.write_enable.eq(held.write_enable),
            waiting.write_address.eq(held.write_address),
            waiting.write_data.eq(held.write_data),
            waiting.read_enable.eq(reads),
            waiting.read_address.eq(given),
            states.payload["values"].eq(waiting.read_data),
            states.payload.epsilon.eq(self.epsilon),
        ]
        with m.If(move):
            m.d.sync += states.valid.eq(there)
        with m.If(reads):
            m.d.sync += [
                states.payload.last.eq(last),
                slice_.eq(Mux(last, 0, slice_ + 1)),
                given.eq(given + 1),
            ]
            with m.If(~grown & (given == count - 1)):
                m.d.sync += [given.eq(0), grown.eq(1)]
        with m.If(self.start):
            m.d.sync += [given.eq(0), grown.eq(0)]

    def _give(self, m: Module, norm: RmsNorm | LayerNorm) -> None:
        """Send normalised slices to the blocks, and those of the attention block to outside."""
        p = self.parameters
        results, first, row = norm.results, Signal(), Signal(p.token_shape)
        slice_ = results.payload["values"]
        # The ready of `inputs` does not depend on its valid, so that the two may wait for each
        # other's ready.
        m.d.comb += [
            self.inputs.payload.eq(slice_),
            self.normalised.payload.eq(slice_),
            self.inputs.valid.eq(results.valid & (~first | self.normalised.ready)),
            self.normalised.valid.eq(results.valid & first & self.inputs.ready),
            results.ready.eq(self.inputs.ready & (~first | self.normalised.ready)),
        ]
        with m.If(results.valid & results.ready & results.payload.last):
            last = row == self.last_token
            m.d.sync += [row.eq(Mux(last, 0, row + 1)), first.eq(first & ~last)]
        with m.If(self.start):
            m.d.sync += first.eq(~self.predicts)
