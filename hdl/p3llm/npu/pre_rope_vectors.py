"""The NPU's vector unit if keys are quantised before the rotary embedding."""

from dataclasses import replace

from amaranth.hdl import Module, Mux, Signal, Value

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.block_fixed import BlockFixedParameters
from hdl.p3llm.npu.key_reader import KeyReader
from hdl.p3llm.npu.pre_rope_datapaths import PreRopeDatapaths
from hdl.p3llm.npu.query_key_score import QueryKeyScore
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.p3llm.parameters import P3llmParameters

KEYS = 3
"""Keys in the conversion to integers: one each is written, searched and read."""


class PreRopeVectorUnit(VectorUnit):
    """`VectorUnit`, which rotates all keys and multiplies the query by them.

    `QUERY` stores the rotated query and its head's smoothing factors. The following `SCORES` reads
    the head's keys token by token: (code - zero point) * (scale * factor), rotated by the token's
    position, times the query (P3-LLM, Section V-A).

    **Latency** and **Throughput** as of `VectorUnit`; `SCORES` processes one slice of a key per
    cycle. **Numerics** as of `VectorUnit` and `QueryKeyScore`; a key is rounded to binary32 by the
    scaler, to integers whose largest has 15 bits, by the rotation, and to FP16.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    As `VectorUnit`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    datapaths = PreRopeDatapaths

    def __init__(self, *, parameters: P3llmParameters) -> None:
        super().__init__(parameters=parameters)
        p = parameters
        self.key_reader, self.key_score = KeyReader(parameters=p), QueryKeyScore(parameters=p)
        slices, half = p.head_size // p.lanes, 16 * p.lanes
        # Replayed for every key: its channels' factors and, after its rotation, the query.
        self.key_factors, self.query = (
            ReplayBuffer(shape=half, depth=slices, follows=False) for _ in range(2)
        )
        # Scale of the token whose slice the scaler receives.
        self.key_scale = Signal(16)
        self.widen_scale = FloatConvert(source=BINARY16, target=BINARY32)
        # A vector's binary point at the output of the rotation.
        self.turned_point = Signal.like(self.block.results.payload.point)
        # Scores are computed from keys instead of sums, and `QUERY` reads factors.
        self.reads_sums = tuple(one for one in self.reads_sums if one is not NpuOperation.SCORES)
        self.reads_factors += (NpuOperation.QUERY,)

    @staticmethod
    def _block_parameters(p: P3llmParameters) -> BlockFixedParameters:
        """Return dimensions at which keys are converted without a gap."""
        return replace(VectorUnit._block_parameters(p), vectors=KEYS)

    def elaborate(self, platform: object) -> Module:
        """Write keys, start their reader with an operation, delay a vector's binary point."""
        m = super().elaborate(platform)
        held, reader, rotary = self.held, self.key_reader, self.rotary.vectors
        point = self.block.results.payload.point
        delayed = delay_line(
            m, point, self.parameters.rotary.stages, name="point", enable=rotary.ready
        )[-1]
        m.d.comb += [
            reader.keys_write.eq(self.keys_write),
            reader.zeros_write.eq(self.zeros_write),
            reader.address.eq(self.columns_address),
            reader.columns.eq(self.columns_data),
            reader.start.eq(self.starts & (held.operation == NpuOperation.SCORES)),
            reader.keys.eq(held.source),
            reader.zeros.eq(held.sums),
            reader.count.eq(self.factor_reader.count),
            self.widen_scale.a.eq(self.key_scale),
            self.turned_point.eq(delayed),
        ]
        if self.parameters.channel_bits:
            m.d.comb += reader.channel.eq(held.head)
        return m

    def _sums_factor(self, factor: Value) -> Value:
        """Return the common factor in binary32; for `SCORES`, the scale of the key's token."""
        of_key = self.held.operation == NpuOperation.SCORES
        return Mux(of_key, Value.cast(self.widen_scale.result), Value.cast(factor))
