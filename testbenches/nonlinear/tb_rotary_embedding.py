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
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

Integers = NDArray[np.int64]
Vectors = tuple[Integers, Integers]
"""Vectors [count, head_size], and their positions [count]."""

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


def real_vectors(p: RotaryEmbeddingParameters) -> Vectors:
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


def random_vectors(rng: np.random.Generator, p: RotaryEmbeddingParameters, count: int) -> Vectors:
    """Return random elements, many of them extreme, at random positions."""
    vectors = rng.integers(LOWEST, HIGHEST + 1, (count, p.head_size))
    extreme = rng.choice([LOWEST, HIGHEST, 0, 1, -1], vectors.shape)
    vectors = np.where(rng.random(vectors.shape) < 0.3, extreme, vectors)
    return vectors, rng.integers(0, 1 << p.position_bits, count)


def ends(p: RotaryEmbeddingParameters, count: int) -> Integers:
    """Return 1 at the last slice of each vector."""
    return np.tile(np.arange(p.slices) == p.slices - 1, count).astype(np.int64)


def offered(vectors: Vectors, p: RotaryEmbeddingParameters) -> Fields:
    """Cut vectors into slices."""
    values, positions = vectors
    return {
        "values": values.reshape(-1, p.lanes),
        "position": np.repeat(positions, p.slices),
        "last": ends(p, len(values)),
    }


def expected(vectors: Vectors, p: RotaryEmbeddingParameters) -> Fields:
    """Return the slices of rotated vectors."""
    values = rotate(*vectors, p).reshape(-1, p.lanes)
    return {"values": values, "last": ends(p, len(vectors[0]))}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> UnitBench[Vectors]:
    """Attach the unit's streams and its model."""
    p = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={"vectors": p.slice_layout},
        outputs={"rotated": p.result_layout},
        offered=lambda vectors: {"vectors": offered(vectors, p)},
        expected=lambda vectors: {"rotated": expected(vectors, p)},
    )


@cocotb.test()
async def real_queries_and_keys(dut: Any) -> None:
    """Run SmolLM2's queries and keys at full rate; compare every bit."""
    bench = bench_for(dut, "real")
    vectors, positions = real_vectors(bench.p)
    cycles = await bench.run((vectors, positions))
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} queries and keys"
    ideal = len(vectors) * bench.p.slices
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def positions(dut: Any) -> None:
    """Rotate extreme elements to the first, the last and many other positions."""
    bench = bench_for(dut, "positions")
    last = (1 << bench.p.position_bits) - 1
    places = np.unique(np.linspace(0, last, 200).astype(np.int64))
    for x, y in ((LOWEST, LOWEST), (HIGHEST, LOWEST), (HIGHEST, 0)):
        vectors = np.tile([x, y], (len(places), bench.p.head_size // 2))
        await bench.run((vectors, places))


stalls = stall_test(bench_for, lambda bench: random_vectors(bench.bench.numpy_rng, bench.p, 40))
resets = reset_test(
    bench_for,
    lambda bench: random_vectors(bench.bench.numpy_rng, bench.p, 12),
    times=12,
    longest=60,
)
