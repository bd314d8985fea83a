"""Testbench of the rotary embedding: SmolLM2's queries and keys, extremes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.fixed_point import quantise
from golden.llm import open_trace
from golden.nonlinear.rotary_embedding import paired, rotate
from hdl.arith.fixed_point import FixedPoint
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from testbenches.bench import catalog_parameters
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

Integers = NDArray[np.int64]
LAYERS = (0, 14, 29)
TOKENS = 640
STEP = 16
"""Interval of the tokens that are used."""

FORMAT = FixedPoint(integer_bits=6, fraction_bits=10)
"""Format of queries and keys; those of SmolLM2 are below 32."""

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1


def prepare(p: RotaryEmbeddingParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_vectors(p: RotaryEmbeddingParameters) -> tuple[Integers, Integers]:
    """Return queries and keys of SmolLM2 before the embedding, paired, and their positions."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    vectors = []
    for layer in LAYERS:
        for head in range(0, trace.heads, 3):
            attention = trace.attention_trace(layer, head)
            vectors += [attention.q_before_rope[::STEP], attention.k_before_rope[::STEP]]
    raw = paired(quantise(np.concatenate(vectors), FORMAT))
    positions = np.tile(np.arange(0, TOKENS, STEP), len(vectors)) % (1 << p.position_bits)
    # Other head sizes repeat or truncate the channels.
    return np.resize(raw, (len(raw), p.head_size)), positions


def random_vectors(rng: np.random.Generator, p: RotaryEmbeddingParameters, count: int) -> Any:
    """Return random elements, many of them extreme, at random positions."""
    vectors = rng.integers(LOWEST, HIGHEST + 1, (count, p.head_size))
    extreme = rng.choice([LOWEST, HIGHEST, 0, 1, -1], vectors.shape)
    vectors = np.where(rng.random(vectors.shape) < 0.3, extreme, vectors)
    return vectors, rng.integers(0, 1 << p.position_bits, count)


class RotaryBench:
    """The unit's streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p = p = catalog_parameters()
        self.slices = StreamBench(
            dut,
            salt,
            source=("vectors", p.slice_layout),
            sink=("rotated", p.result_layout),
            pauses=(source, sink),
        )
        self.bench = self.slices.bench

    def offered(self, vectors: Integers, positions: Integers) -> Fields:
        """Cut vectors into slices."""
        count = self.p.slices
        last = np.tile(np.arange(count) == count - 1, len(vectors)).astype(np.int64)
        values = vectors.reshape(-1, self.p.lanes)
        return {"values": values, "position": np.repeat(positions, count), "last": last}

    async def run(self, vectors: Integers, positions: Integers) -> int:
        """Run vectors and compare every element; return the cycles."""
        offered = self.offered(vectors, positions)
        cycles = await self.slices.run(offered)
        values = rotate(vectors, positions, self.p).reshape(-1, self.p.lanes)
        self.slices.check({"values": values, "last": offered["last"]})
        return cycles


@cocotb.test()
async def real_queries_and_keys(dut: Any) -> None:
    """Run SmolLM2's queries and keys at full rate; compare every bit."""
    bench = RotaryBench(dut, "real")
    vectors, positions = real_vectors(bench.p)
    cycles = await bench.run(vectors, positions)
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} queries and keys"
    ideal = len(vectors) * bench.p.slices
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def positions(dut: Any) -> None:
    """Rotate extreme elements to the first, the last and many other positions."""
    bench = RotaryBench(dut, "positions")
    last = (1 << bench.p.position_bits) - 1
    places = np.unique(np.linspace(0, last, 200).astype(np.int64))
    for x, y in ((LOWEST, LOWEST), (HIGHEST, LOWEST), (HIGHEST, 0)):
        vectors = np.tile([x, y], (len(places), bench.p.head_size // 2))
        await bench.run(vectors, places)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random vectors with every pair of pause patterns."""
    bench = RotaryBench(dut, f"stalls {source} {sink}", source, sink)
    await bench.run(*random_vectors(bench.bench.numpy_rng, bench.p, 40))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state must survive."""
    bench = RotaryBench(dut, "resets", "random", "bursty")
    vectors, places = random_vectors(bench.bench.numpy_rng, bench.p, 12)
    await bench.slices.disturb(bench.offered(vectors, places), times=12, longest=60)
    await bench.run(vectors, places)
