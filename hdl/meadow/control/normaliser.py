"""Norm before attention and before the feed-forward layers: hidden states to INT8 (Figure 2a)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.meadow.control.row_scaler import RowScaler
from hdl.meadow.parameters import NORM_DROP, MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.meadow.tile.tile_parameters import RESULT
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.nonlinear.layer_norm import LayerNorm, LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.stream.collector import Collector
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


class Normaliser(Unit):
    """RMSNorm or layer norm of a block of tokens; the weights are read once per block.

    **Latency** 20 cycles after the last word of a row, 21 with layer norm, both with a norm as wide
    as a word. **Throughput** one word per cycle; with fewer `norm_lanes` one word in ``head_size /
    norm_lanes`` cycles.

    **Numerics** those of `RowScaler`, and of `RmsNorm` or `LayerNorm`. The Q6.10 result is divided
    by ``2**NORM_DROP``, rounded half to even and clamped to INT8; the weights and biases contain
    all scales. With token exponents the result is output as it is, and `RowNarrower` rounds it.

    Parameters
    ----------
    parameters : MeadowParameters
        Kind of norm and dimensions of a row.

    Members
    -------
    tokens, epsilon : In
        Tokens of the block, and epsilon as in `RowScaler`; constant during an instruction.
    states : In(stream)
        Rows, as in `RowScaler`.
    weights : In(stream)
        A row of weights, one word per `item`; `last` with its last word. With layer norm a word of
        biases in Q6.10 follows each word of weights.
    results : Out(stream)
        Words of INT8 values, of 16 bits with token exponents.
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

    def elaborate(self, platform: object) -> Module:
        """Scale and normalise rows; release the weights after the last row."""
        m = Module()
        p = self.parameters
        m.submodules.scaler = scaler = RowScaler(parameters=p)
        # The weights are read once and replayed for every token of the block.
        norm: LayerNorm | RmsNorm
        if isinstance(p.norm, LayerNormParameters):
            norm, shape = LayerNorm(parameters=p.norm), p.norm.affine_layout
            affine = norm.affine
        else:
            norm, shape = RmsNorm(parameters=p.norm), p.norm.values_layout
            affine = norm.weights
        pieces = p.head_size // p.norm.lanes
        m.submodules.weights = weights = ReplayBuffer(
            shape=shape,
            depth=p.norm.slices,
            parts=p.norm_words // p.state_words,
            placed=pieces > 1,
        )
        m.submodules.norm = norm
        if pieces == 1:
            connect_streams(m, self.states, scaler.states)
            # A word is an item, or with layer norm a part of one.
            m.d.comb += Value.cast(weights.source.payload).eq(Value.cast(self.weights.payload))
            connect_handshake(m, self.weights, weights.source)
        else:
            self._slice(m, scaler, weights, pieces)
        connect_streams(m, scaler.rows, norm.states)
        connect_streams(m, weights.sink, affine)
        word, row = Signal(range(p.norm.slices)), Signal(range(p.tokens + 1))
        row_last = word == p.norm.slices - 1
        m.d.comb += [
            scaler.epsilon.eq(self.epsilon),
            weights.release.eq(row_last & (row + 1 == self.tokens)),
        ]
        # Rows are counted where the norm reads weights, so that the release follows the last read.
        with m.If(weights.sink.valid & weights.sink.ready):
            m.d.sync += word.eq(word + 1)
            with m.If(row_last):
                m.d.sync += [word.eq(0), row.eq(row + 1)]
            with m.If(weights.release):
                m.d.sync += row.eq(0)
        shape = RESULT if p.token_exponents else OPERAND
        narrowed = stream.Signature(data.ArrayLayout(shape, p.norm.lanes)).create()
        connect_handshake(m, norm.results, narrowed)
        for narrow, value in zip(narrowed.payload, norm.results.payload["values"], strict=True):
            if p.token_exponents:
                m.d.comb += narrow.eq(value)
                continue
            # The weights contain all scales, so that one constant shift remains.
            rounded = rounded_right(value, NORM_DROP, Rounding.HALF_EVEN)
            m.d.comb += narrow.eq(saturate(rounded, OPERAND)[0])
        words, results = narrowed, list(narrowed.payload)
        if pieces > 1:
            m.submodules.words = collector = Collector(shape=narrowed.payload.shape(), items=pieces)
            m.d.comb += collector.items.payload["item"].eq(narrowed.payload)
            connect_handshake(m, narrowed, collector.items)
            words = collector.groups
            results = [item for part in words.payload["items"] for item in part]
        connect_handshake(m, words, self.results)
        m.d.comb += [
            result.eq(item) for result, item in zip(self.results.payload, results, strict=True)
        ]
        return m

    def _slice(self, m: Module, scaler: RowScaler, weights: ReplayBuffer, pieces: int) -> None:
        """Serialise words of states and of weights to slices that are as wide as the norm."""
        p = self.parameters
        slices = []
        for name, words, item, shape in (
            ("states", self.states, "values", p.norm_row_layout["values"].shape),
            ("items", self.weights, "item", p.norm.values_layout),
        ):
            m.submodules[f"{name}_slices"] = serialiser = Serialiser(shape=shape, items=pieces)
            m.d.comb += [
                Value.cast(serialiser.groups.payload["items"]).eq(Value.cast(words.payload[item])),
                serialiser.groups.payload.last.eq(words.payload.last),
            ]
            connect_handshake(m, words, serialiser.groups)
            slices.append(serialiser.items)
        states, items = slices
        parts = weights.parts
        # Words of weights and of biases alternate; a slice of the buffer has both.
        place, part, word = (
            Signal(range(pieces)),
            Signal(range(parts)),
            Signal(range(p.state_words)),
        )
        source = weights.source.payload
        m.d.comb += [
            scaler.states.payload["values"].eq(states.payload["item"]),
            scaler.states.payload.last.eq(states.payload.last),
            Value.cast(source["item"]).eq(Value.cast(items.payload["item"])),
            source.last.eq(items.payload.last),
            source.place.eq(Cat(part, place, word)),
        ]
        connect_handshake(m, states, scaler.states)
        connect_handshake(m, items, weights.source)
        with m.If(items.valid & items.ready):
            m.d.sync += place.eq(place + 1)
            with m.If(place == pieces - 1):
                m.d.sync += part.eq(part + 1)
                with m.If(part == parts - 1):
                    m.d.sync += word.eq(word + 1)
            with m.If(items.payload.last):
                m.d.sync += word.eq(0)
