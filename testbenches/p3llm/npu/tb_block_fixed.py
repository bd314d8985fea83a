"""Testbench of block floating point: SmolLM2's states and queries, any numbers, stalls, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.p3llm.npu.block_fixed import block_fixed
from hdl.p3llm.quantisers.extreme import extreme_stages
from testbenches.bench import catalog_parameters
from testbenches.p3llm.npu.lanes_bench import LAYERS, SHOWN, Codes, any_singles, singles, trace
from testbenches.p3llm.npu.lanes_bench import prepare as prepare
from testbenches.p3llm.quantisers.vector_bench import VectorBench
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields

READ_LATENCY = 4
"""Cycles from the read of a vector's first slice to its integers."""


def spares(vector: Codes) -> int:
    """Return whether a vector has a spare bit, from the last digit of its first number."""
    return int(vector[0] & 1)


def model(vectors: Codes) -> Fields:
    """Return a vector's integers and its binary point."""
    numbers = vectors.astype(np.uint32).view(np.float32)
    values, point = block_fixed(numbers, spare=spares(vectors[0]))
    return {"values": values, "point": point}


class BlockBench(VectorBench):
    """The unit's two streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        latency = extreme_stages(catalog_parameters().lanes) + 4
        super().__init__(
            dut, salt, source, sink, model=model, latency=latency, read_latency=READ_LATENCY
        )

    def slices_of(self, vectors: list[Codes]) -> Fields:
        """Split vectors into slices; `spare` is valid in the last one only."""
        fields = super().slices_of(vectors)
        spare = np.repeat([spares(row) for row in vectors], [len(row) for row in vectors])
        return {**fields, "spare": spare[:: self.p.lanes] ^ (1 - fields["last"])}

    def random_vectors(self, count: int) -> list[Codes]:
        """Generate vectors of all lengths and magnitudes, half of them with random codes."""
        rng, width = self.bench.numpy_rng, self.p.slices * self.p.lanes
        powers = rng.integers(-140, 128, (count, 1)) - rng.integers(0, 20, (count, width))
        near = singles(np.ldexp(rng.uniform(-2, 2, (count, width)), powers))
        codes = any_singles(rng, count * width).reshape(count, width)
        # Half of them have no special numbers, which would mask all others.
        finite = np.where(codes >> 23 & 0xFF == 0xFF, codes & 0x807FFFFF, codes)
        kind = rng.integers(0, 4, (count, 1))
        return self.random_lengths(np.where(kind == 0, codes, np.where(kind == 1, finite, near)))


def real_vectors(width: int) -> Codes:
    """Return hidden states, truncated or repeated to a width."""
    rows = np.concatenate([trace().hidden(layer)[0][-SHOWN:] for layer in LAYERS])
    return singles(rows[:, np.arange(width) % rows.shape[1]])


@cocotb.test()
async def real(dut: Any) -> None:
    """Scale SmolLM2's hidden states at full rate; results are bit-identical."""
    bench = BlockBench(dut, "real")
    vectors = bench.fewer(real_vectors(bench.p.slices * bench.p.lanes))
    await bench.run_at_full_rate(vectors, f"SmolLM2 layers {LAYERS}, {len(vectors)} states")


@cocotb.test()
async def queries(dut: Any) -> None:
    """Scale SmolLM2's queries before their rotary embedding."""
    bench = BlockBench(dut, "queries")
    heads = [trace().attention_trace(layer, 0).q_before_rope[-SHOWN:] for layer in LAYERS]
    length = max(2, min(bench.p.slices, 64 // bench.p.lanes)) * bench.p.lanes
    columns = np.arange(length) % 64
    await bench.run(singles(np.concatenate(heads)[:, columns]))


@cocotb.test()
async def any_numbers(dut: Any) -> None:
    """Scale vectors of all lengths; zeros, subnormal numbers, infinities and NaNs."""
    bench = BlockBench(dut, "any_numbers")
    width = bench.p.slices * bench.p.lanes
    zeros = [np.zeros(2 * bench.p.lanes, np.int64), np.full(2 * bench.p.lanes, 1 << 31)]
    await bench.run([*zeros, *bench.random_vectors(max(12, 20_000 // width))])


stalls = stall_test(BlockBench, lambda bench: bench.random_vectors(8))
resets = reset_test(
    BlockBench,
    lambda bench: bench.random_vectors(6),
    longest=lambda bench: 3 * bench.p.slices + 20,
    times=6,
)
