"""The NPU's vector unit if the newest token's key and value are in FP16 in its own step."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from hdl.memory.memory import Memory
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.newest_datapaths import NewestDatapaths
from hdl.p3llm.npu.newest_score import NewestScore
from hdl.p3llm.npu.slice_reader import SliceReader
from hdl.p3llm.npu.vector_unit import VectorUnit
from hdl.p3llm.parameters import P3llmParameters


class NewestVectorUnit(VectorUnit):
    """`VectorUnit`, with the newest token's own score and its own term of a head's output.

    Rotated keys of the heads in flight, one per pseudo-channel, are held in FP16. A value is
    rounded to FP16 again when it is multiplied by its probability.

    **Latency** and **Throughput** as of `VectorUnit`. **Numerics** the score is that of
    `NewestScore`; a value times its probability is exact in binary32, and its sum with the units'
    result is rounded once.

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

    datapaths = NewestDatapaths
    reads_numbers = (*VectorUnit.reads_numbers, NpuOperation.WEIGH, NpuOperation.HEAD)
    stores_scaled = (NpuOperation.SCALE, NpuOperation.WEIGH)
    stores_added = (*VectorUnit.stores_added, NpuOperation.HEAD)

    def __init__(self, *, parameters: P3llmParameters) -> None:
        super().__init__(parameters=parameters)
        p = parameters
        self.newest_keys = Memory(depth=self.places.keys_depth, width=16 * p.lanes)
        self.key_reader, self.key_write = (
            SliceReader(
                address_bits=bits_for(self.places.keys_depth), count_bits=self.places.count_bits
            ),
            Signal(),
        )
        self.newest_score = NewestScore(parameters=p)
        # The token's own score and probability, for each query head in flight.
        self.scores = Array(Signal(32, name=f"score_{i}") for i in range(p.scalars))
        self.shares = Array(Signal(16, name=f"share_{i}") for i in range(p.scalars))

    def elaborate(self, platform: object) -> Module:
        """Write a head's key, read it with each of its queries, hold their scores."""
        m = super().elaborate(platform)
        held, keys, reader = self.held, self.newest_keys, self.key_reader
        score = self.newest_score
        place = Signal.like(reader.first, name="key_place")
        with m.If(self.instructions.valid & self.instructions.ready):
            m.d.sync += place.eq(self.instructions.payload.target)
        with m.Elif(self.key_write):
            m.d.sync += place.eq(place + 1)
        m.d.comb += [
            # Reads of numbers and keys start in the same cycle.
            reader.start.eq(self.number_reader.start & (held.operation == NpuOperation.QUERY)),
            reader.first.eq(held.factors),
            reader.count.eq(held.count),
            keys.read_enable.eq(reader.read_enable),
            keys.read_address.eq(reader.read_address),
            keys.write_enable.eq(self.key_write),
            keys.write_address.eq(place),
            keys.write_data.eq(Value.cast(self.half.results.payload["values"])),
            Value.cast(score.key).eq(keys.read_data),
            score.scalar.eq(self.scalar),
        ]
        # A score is valid before the last code of its query, long before the sums of the others.
        with m.If(score.scored.valid):
            m.d.sync += self.scores[score.scored.scalar].eq(score.score.as_value())
        return m

    def _common(self, factor: Value) -> Value:
        """Return the common factor in FP16; for `WEIGH`, the token's probability."""
        return Mux(self.held.operation == NpuOperation.WEIGH, self.shares[self.scalar], factor)
