"""The NPU's vector unit where keys are quantised before the rotary embedding."""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.p3llm.npu.block_fixed import BlockFixedParameters
from hdl.p3llm.npu.key_reader import KeyReader
from hdl.p3llm.npu.newest_score import NewestScore
from hdl.p3llm.npu.npu_instructions import NpuOperation
from hdl.p3llm.npu.pre_rope_ways import PreRopeWays
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.p3llm.parameters import P3llmParameters

KEYS = 3
"""Keys in the conversion to integers: one comes, of one the exponent is found, one leaves."""


class PreRopeVectorUnit(VectorUnit):
    """`VectorUnit`, with the product of a query and all keys, which are turned here.

    A `QUERY` keeps the turned query and its head's smoothing factors. The `SCORES` behind it reads
    the head's keys token by token: code minus zero point times scale times factor, turned by the
    token's position, times the query (P3-LLM, Section V-A).

    **Latency** and **Throughput** as of `VectorUnit`; `SCORES` takes a slice of a key a cycle.
    **Numerics** as of `VectorUnit` and `NewestScore`; a key is rounded to binary32 as the scaler
    does it, to 15 bits by its largest element, when it is turned, and to FP16.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    See `VectorUnit`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    ways = PreRopeWays

    def __init__(self, *, parameters: P3llmParameters) -> None:
        super().__init__(parameters=parameters)
        p = parameters
        self.key_reader, self.key_score = KeyReader(parameters=p), NewestScore(parameters=p)
        slices, half = p.head_size // p.lanes, 16 * p.lanes
        # What every key meets: its channels' factors, and behind its rotation the query.
        self.key_factors, self.query = (
            ReplayBuffer(shape=half, depth=slices, follows=False) for _ in range(2)
        )
        # Of the token whose slice the scaler takes.
        self.key_scale = Signal(16)
        self.widen_scale = FloatConvert(source=BINARY16, target=BINARY32)
        # A vector's binary point when it leaves the rotation.
        self.turned_point = Signal.like(self.block.results.payload.point)
        # Scores come from the keys, and a query's factors from the banks.
        self.reads_sums = tuple(one for one in self.reads_sums if one is not NpuOperation.SCORES)
        self.reads_factors += (NpuOperation.QUERY,)

    @staticmethod
    def _block_parameters(p: P3llmParameters) -> BlockFixedParameters:
        """Return dimensions at which keys follow one another without a gap."""
        return replace(VectorUnit._block_parameters(p), vectors=KEYS)

    def elaborate(self, platform: Any) -> Module:
        """Write keys, start their reader with an operation, keep what accompanies a vector."""
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
        """Return the factor of all that is scaled, in binary32: of a key its token's scale."""
        of_key = self.held.operation == NpuOperation.SCORES
        return Mux(of_key, Value.cast(self.widen_scale.result), Value.cast(factor))
