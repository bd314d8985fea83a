"""Q K^T in the NPU, if keys are quantised before the rotary embedding."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.p3llm.npu.key_reader import KeyReader
from hdl.p3llm.npu.query_key_score import QueryKeyScore
from hdl.p3llm.npu.result_scaler import ResultScalerParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode
from hdl.p3llm.places import Places
from hdl.unit import Unit


class KeyProduct(Unit):
    """Multiply a query by all keys of its head, which the vector unit rotates in between.

    A query and its head's smoothing factors are stored first, and replayed for every key. The unit
    outputs a key, token by token, as integers ``code - zero point`` with the factors
    ``scale * smoothing factor``. The vector unit scales and rotates it, and returns it in FP16. The
    scores of `lanes` tokens are a slice (P3-LLM, Section V-A).

    **Throughput** one slice of a key per cycle. **Numerics** as `QueryKeyScore`; (code - zero
    point) is exact.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    keys_write, zeros_write, address, columns : In
        Write ports of `KeyReader`.
    start, keys, zeros, count : In
        Read `count` slices of tokens, as `KeyReader`.
    channel : In
        Pseudo-channel of the head; only with several.
    queries, factors : In(stream)
        A rotated query, and the smoothing factors of its keys: `values` in FP16, and `last`.
    scales : In(stream)
        Scales of the keys of a slice of tokens: `values` in FP16, and `last`, which is not used.
    integers : Out(stream)
        A slice of a key, for `ResultScaler`.
    rotates : In(1)
        The last slice of a key enters the rotation.
    position : Out
        Position of the key that is rotated.
    rotated : In(stream)
        Rotated keys: `values` in FP16, and `last` of each key; always ready.
    active : Out(1)
        A query is stored: keys are rotated.
    scores : Out(stream)
        `values` in binary32, and `last`; the reader never stalls.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places, column = Places(p), p.channel.unit.column_bits
        self.reader, self.score = KeyReader(parameters=p), QueryKeyScore(parameters=p)
        self.query, self.key_factors = (
            ReplayBuffer(shape=16 * p.lanes, depth=p.head_size // p.lanes, follows=False)
            for _ in range(2)
        )
        halves, singles = (
            data.StructLayout({"values": data.ArrayLayout(width, p.lanes), "last": 1})
            for width in (16, 32)
        )
        integers = ResultScalerParameters(lanes=p.lanes).slice_layout
        super().__init__(
            {
                "keys_write": In(1),
                "zeros_write": In(1),
                "address": In(places.column_bits),
                "columns": In(p.pseudo_channels * column),
                "start": In(1),
                "keys": In(places.column_bits),
                "zeros": In(places.column_bits),
                "count": In(places.count_bits),
                **({"channel": In(p.channel_bits)} if p.channel_bits else {}),
                "queries": In(stream.Signature(halves)),
                "factors": In(stream.Signature(halves)),
                "scales": In(stream.Signature(halves)),
                "integers": Out(stream.Signature(integers)),
                "rotates": In(1),
                "position": Out(range(p.slots)),
                "rotated": In(stream.Signature(halves)),
                "active": Out(1),
                "scores": Out(stream.Signature(singles)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read keys; multiply the rotated ones by the query; collect scores."""
        m = Module()
        reader = self.reader
        m.submodules.reader, m.submodules.score = reader, self.score
        m.submodules.query, m.submodules.key_factors = self.query, self.key_factors
        for source, buffer in ((self.queries, self.query), (self.factors, self.key_factors)):
            m.d.comb += [
                buffer.source.valid.eq(source.valid),
                source.ready.eq(buffer.source.ready),
                buffer.source.payload.item.eq(Value.cast(source.payload["values"])),
                buffer.source.payload.last.eq(source.payload.last),
            ]
        m.d.comb += [
            reader.keys_write.eq(self.keys_write),
            reader.zeros_write.eq(self.zeros_write),
            reader.address.eq(self.address),
            reader.columns.eq(self.columns),
            reader.start.eq(self.start),
            reader.keys.eq(self.keys),
            reader.zeros.eq(self.zeros),
            reader.count.eq(self.count),
            self.position.eq(self._token(m, "rotated", self.rotates)),
            self.active.eq(self.query.sink.valid),
        ]
        if self.parameters.channel_bits:
            m.d.comb += reader.channel.eq(self.channel)
        self._dequantise(m)
        self._multiply(m)
        self._collect(m)
        return m

    def _dequantise(self, m: Module) -> None:
        """Output integers, with factors of the key's channels and the scale of its token."""
        lanes, keys, scales = self.parameters.lanes, self.reader.slices, self.scales
        integers, factors, given = self.integers, self.key_factors, self.reader.slices.payload
        taken = integers.valid & integers.ready
        m.submodules.widen = widen = FloatConvert(source=BINARY16, target=BINARY32)
        m.d.comb += [
            integers.valid.eq(keys.valid & scales.valid & factors.sink.valid),
            keys.ready.eq(taken),
            factors.sink.ready.eq(taken),
            factors.release.eq(given.final),
            # A slice of scales belongs to as many tokens.
            scales.ready.eq(taken & given["last"] & (given.token == lanes - 1)),
            widen.a.eq(Value.cast(scales.payload["values"]).word_select(given.token, 16)),
            Value.cast(integers.payload.factors).eq(factors.sink.payload),
            integers.payload.common.eq(widen.result),
            # The integers have the format of the units' sums of Q K^T.
            integers.payload.point.eq(FRACTION_BITS[Mode.QK]),
            *(
                integers.payload.sums[i].eq(given["values"][i] << FRACTION_BITS[Mode.QK])
                for i in range(lanes)
            ),
            integers.payload.last.eq(given["last"]),
        ]

    def _multiply(self, m: Module) -> None:
        """Multiply rotated keys by the query, which is released with the last one."""
        rotated, query, score = self.rotated, self.query, self.score
        token = self._token(m, "multiplied", rotated.valid & rotated.payload.last)
        m.d.comb += [
            # A slice of the query is always valid: its replay has no gaps.
            rotated.ready.eq(1),
            query.sink.ready.eq(rotated.valid),
            query.release.eq(rotated.payload.last & self._is_final(token)),
            Value.cast(score.query).eq(query.sink.payload),
            score.key.eq(rotated.payload["values"]),
            score.strobe.eq(rotated.valid),
            score.last.eq(rotated.payload.last),
        ]

    def _collect(self, m: Module) -> None:
        """Collect the scores of a slice of tokens."""
        lanes, score, scores = self.parameters.lanes, self.score, self.scores
        token = self._token(m, "scored", score.valid)
        before = Signal(32 * (lanes - 1), name="scores_before")
        values = Cat(before, score.score.as_value())
        with m.If(score.valid):
            m.d.sync += before.eq(values[32:])
        m.d.comb += [
            scores.valid.eq(score.valid & token[: ceil_log2(lanes)].all()),
            Value.cast(scores.payload["values"]).eq(values),
            scores.payload.last.eq(self._is_final(token)),
        ]

    def _token(self, m: Module, name: str, passes: Value) -> Signal:
        """Return the index of the current token at a place of the pipeline."""
        token = Signal(range(self.parameters.slots), name=f"{name}_token")
        with m.If(self.start):
            m.d.sync += token.eq(0)
        with m.Elif(passes):
            m.d.sync += token.eq(token + 1)
        return token

    def _is_final(self, token: Signal) -> Value:
        """Return whether a token is the last one of the last slice."""
        return token + 1 == self.count << ceil_log2(self.parameters.lanes)
