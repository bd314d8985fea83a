"""Testbench of the element-serial layernorm: SmolLM2's hidden states, extremes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.veda.functions.element_serial_layernorm import layernorm
from hdl.veda.functions.deviation_reciprocal import DeviationReciprocal
from hdl.veda.functions.element_serial_layernorm import ElementSerialLayernormParameters
from testbenches.bench import catalog_parameters, context
from testbenches.streams import read
from testbenches.veda.functions.serial_bench import BEATS, SerialBench, elements_of

Vectors = list[NDArray[np.uint16]]
LAYERS = (0, 14, 29)
TOKENS = 640

NAN, INFINITY, LARGEST = 0x7E00, 0x7C00, 0x7BFF


def prepare(p: ElementSerialLayernormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_vectors(p: ElementSerialLayernormParameters, tokens: int) -> Vectors:
    """Return hidden states of SmolLM2, into and out of three layers, or as much as has room."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    vectors = []
    for layer in LAYERS:
        for states in trace.hidden(layer):
            for token in np.linspace(0, TOKENS - 1, tokens).astype(int):
                vectors.append(codes(states[token, : p.capacity]))
    return vectors


def edge_vectors(p: ElementSerialLayernormParameters) -> Vectors:
    """Return what the arithmetic could stumble over."""
    n = min(p.capacity, 40)
    rng = np.random.default_rng(n)
    ordinary = rng.normal(0, 1, n)
    one_huge = np.zeros(n)
    one_huge[n // 2] = 65504
    # What is dropped of the squares is more than their variance.
    vectors = [np.array([0x08E6, 0x08E7], np.uint16)]
    vectors += [np.full(n, value, np.uint16) for value in (0, 0x8000, 1, LARGEST, 0xFBFF, 0x3C00)]
    vectors += [np.array([value], np.uint16) for value in (0, 1, LARGEST, 0xFBFF, 0xBC01)]
    vectors += [codes(ordinary * scale) for scale in (2.0**-24, 2.0**-14, 1e-3, 0.1, 30, 2e4)]
    vectors += [codes(ordinary + shift) for shift in (-1000.0, 100.0, 10.0, -3.0)]
    vectors += [codes(one_huge), codes(-one_huge), codes(np.where(one_huge > 0, 2.0**-10, 2e-7))]
    alternating = np.where(np.arange(n) % 2, 0x7BFF, 0xFBFF).astype(np.uint16)
    vectors += [alternating, codes(np.arange(n) % 2), codes(1000 + np.arange(n) % 2)]
    return vectors


def undefined_vectors(p: ElementSerialLayernormParameters) -> Vectors:
    """Return vectors with an infinity or a NaN."""
    n = min(p.capacity, 9)
    vectors = []
    for place in (0, n // 2, n - 1):
        for value in (NAN, INFINITY, 0xFC00, 0xFFFF):
            vectors.append(codes(np.random.default_rng(place).normal(0, 2, n)))
            vectors[-1][place] = value
    return vectors


def random_vectors(
    rng: np.random.Generator, p: ElementSerialLayernormParameters, count: int
) -> Vectors:
    """Return vectors of random lengths, spreads and means."""
    lengths = rng.integers(1, min(p.capacity, 300) + 1, count)
    lengths[::3] = rng.integers(1, 4, len(lengths[::3])).clip(max=p.capacity)
    return [
        codes(rng.normal(rng.normal(0, 1), 1, length) * 2.0 ** rng.uniform(-14, 12))
        for length in lengths
    ]


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> SerialBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    dut.clear_undefined.value = 0
    return SerialBench(
        dut,
        salt,
        source=("elements", p.element_layout),
        sink=("normalised", p.element_layout),
        pauses=(source, sink),
    )


async def run_vectors(bench: SerialBench, vectors: Vectors) -> int:
    """Run vectors and compare every element; return the cycles."""
    p = catalog_parameters()
    return await bench.run_rows(vectors, [layernorm(vector, p) for vector in vectors])


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Hidden states of SmolLM2 at full rate, bit for bit, without a flag."""
    bench = bench_for(dut, "real_states")
    vectors = real_vectors(catalog_parameters(), 16 if context()["full"] else 3)
    await run_vectors(bench, vectors)
    assert read(dut.undefined) == 0
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} hidden states"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Long vectors back to back: one element in and one out in every cycle."""
    p = catalog_parameters()
    bench = bench_for(dut, "full_rate")
    # The longest there are: the smallest elements, whose normalisation takes the most steps.
    n = min(p.capacity, 1024)
    vectors = [np.arange(n).astype(np.uint16) for _ in range(4)]
    cycles = await run_vectors(bench, vectors)
    ideal = 5 * n
    at_most = DeviationReciprocal.cycles(p) + p.multiply_stages + 9
    at_most += 0 if p.rms else p.subtract_stages
    if n > at_most:
        assert ideal < cycles <= ideal + at_most - 1, f"{cycles} cycles, {ideal} + {at_most}"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal)


@cocotb.test()
async def edges(dut: Any) -> None:
    """Equal elements, one element, the smallest and the largest numbers, large means."""
    bench = bench_for(dut, "edges")
    await run_vectors(bench, edge_vectors(catalog_parameters()))
    assert read(dut.undefined) == 0


@cocotb.test()
async def undefined(dut: Any) -> None:
    """NaN and infinities spoil their own vector only, and raise the flag."""
    bench = bench_for(dut, "undefined")
    p = catalog_parameters()
    good = edge_vectors(p)[-4:]
    mixed = [vector for bad in undefined_vectors(p) for vector in (bad, good[bad[0] % 4])]
    await run_vectors(bench, mixed)
    assert read(dut.undefined) == 1
    dut.clear_undefined.value = 1
    await bench.bench.step()
    dut.clear_undefined.value = 0
    await bench.bench.step()
    assert read(dut.undefined) == 0


@cocotb.test()
@cocotb.parametrize(source=BEATS, sink=BEATS)
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random vectors under every pair of pause patterns."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, sink)
    await run_vectors(bench, random_vectors(bench.bench.numpy_rng, catalog_parameters(), 8))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    p = catalog_parameters()
    bench = bench_for(dut, "resets", "random", "bursty")
    vectors = random_vectors(bench.bench.numpy_rng, p, 8)
    await bench.disturb(elements_of(vectors), times=12, longest=400)
    await run_vectors(bench, vectors)
