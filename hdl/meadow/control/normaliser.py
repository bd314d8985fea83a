"""The norm before a layer's attention and before its feed-forward: hidden states to INT8."""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.meadow.control.row_scaler import RowScaler
from hdl.meadow.parameters import NORM_DROP, MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.nonlinear.layer_norm import LayerNorm, LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class Normaliser(Unit):
    """RMSNorm or layer norm of a block of tokens, whose weights come in once.

    **Latency** 16 cycles, of layer norm 19, behind a row's last word. **Throughput** a word a
    cycle.

    **Numerics** those of `RowScaler`, and of `RmsNorm` or `LayerNorm`; Q6.10 over ``2**NORM_DROP``,
    rounded half to even, clamped to INT8: all scales are in the weights and biases.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    tokens, epsilon : In
        Of the block; stand while there is work.
    states : In(stream)
        As of `RowScaler`.
    weights : In(stream)
        A row of weights: `item`; `last` with the last. Of layer norm each word of weights is
        followed by one of biases, in Q6.10.
    results : Out(stream)
        Words of INT8 values.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "tokens": In(range(p.tokens + 1)),
                "epsilon": In(EPSILON_BITS),
                "states": In(stream.Signature(p.row_layout)),
                "weights": In(stream.Signature(p.norm_weights_layout)),
                "results": Out(stream.Signature(p.state_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Scale rows, normalise, and let the weights go behind the last one."""
        m = Module()
        p = self.parameters
        m.submodules.scaler = scaler = RowScaler(parameters=p)
        # A norm's weights come in once and are replayed for every token of the block.
        norm: Any
        if isinstance(p.norm, LayerNormParameters):
            norm, shape = LayerNorm(parameters=p.norm), p.norm.affine_layout
            affine = norm.affine
        else:
            norm, shape = RmsNorm(parameters=p.norm), p.norm.values_layout
            affine = norm.weights
        m.submodules.weights = weights = ReplayBuffer(
            shape=shape, depth=p.state_words, parts=p.norm_words // p.state_words
        )
        m.submodules.norm = norm
        connect_streams(m, self.states, scaler.states)
        m.d.comb += [
            # A word is an item, or the part of one.
            Value.cast(weights.source.payload).eq(Value.cast(self.weights.payload)),
            weights.source.valid.eq(self.weights.valid),
            self.weights.ready.eq(weights.source.ready),
        ]
        connect_streams(m, scaler.rows, norm.states)
        connect_streams(m, weights.sink, affine)
        word, row = Signal(range(p.state_words)), Signal(range(p.tokens + 1))
        row_last = word == p.state_words - 1
        m.d.comb += [
            scaler.epsilon.eq(self.epsilon),
            weights.release.eq(row_last & (row + 1 == self.tokens)),
            self.results.valid.eq(norm.results.valid),
            norm.results.ready.eq(self.results.ready),
        ]
        # Rows are counted where the norm takes weights: that is where the last of them is done.
        with m.If(weights.sink.valid & weights.sink.ready):
            m.d.sync += word.eq(word + 1)
            with m.If(row_last):
                m.d.sync += [word.eq(0), row.eq(row + 1)]
            with m.If(weights.release):
                m.d.sync += row.eq(0)
        for narrow, value in zip(self.results.payload, norm.results.payload["values"], strict=True):
            # All scales are in the weights, so that one constant shift is left.
            rounded = rounded_right(value, NORM_DROP, Rounding.HALF_EVEN)
            m.d.comb += narrow.eq(saturate(rounded, OPERAND)[0])
        return m
