"""Testbench of the element-serial layernorm: SmolLM2's hidden states, extremes, stalls, resets."""

from math import isqrt
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.veda.functions.element_serial_layernorm import EPSILON, layernorm, scale_code
from hdl.veda.functions.deviation_reciprocal import DeviationReciprocal
from hdl.veda.functions.element_serial_layernorm import ElementSerialLayernormParameters
from testbenches.bench import catalog_parameters, context
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import read
from testbenches.unit_bench import Fields
from testbenches.veda.functions.serial_bench import SerialBench, elements_of, last_of

Vectors = list[NDArray[np.uint16]]
LAYERS = (0, 14, 29)
TOKENS = 640

UNIT = 2.0**-24
"""The smallest FP16 number, of which all others are multiples."""

NAN, INFINITY, LARGEST = 0x7E00, 0x7C00, 0x7BFF


def prepare(p: ElementSerialLayernormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_vectors(p: ElementSerialLayernormParameters, tokens: int) -> Vectors:
    """Return hidden states of SmolLM2, before and after three layers, limited to `width`."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    vectors = []
    for layer in LAYERS:
        for states in trace.hidden(layer):
            for token in np.linspace(0, TOKENS - 1, tokens).astype(int):
                vectors.append(codes(states[token, : p.width]))
    return vectors


def edge_vectors(p: ElementSerialLayernormParameters) -> Vectors:
    """Return corner cases of the arithmetic."""
    n = min(p.width, 40)
    rng = np.random.default_rng(n)
    ordinary = rng.normal(0, 1, n)
    one_huge = np.zeros(n)
    one_huge[n // 2] = 65504
    # The truncated parts of the squares are larger than their variance.
    vectors = [np.array([0x08E6, 0x08E7], np.uint16)]
    vectors += [np.full(n, value, np.uint16) for value in (0, 0x8000, 1, LARGEST, 0xFBFF, 0x3C00)]
    vectors += [np.array([value], np.uint16) for value in (0, 1, LARGEST, 0xFBFF, 0xBC01)]
    vectors += [codes(ordinary * scale) for scale in (2.0**-24, 2.0**-14, 1e-3, 0.1, 30, 2e4)]
    vectors += [codes(ordinary + shift) for shift in (-1000.0, 100.0, 10.0, -3.0)]
    vectors += [codes(one_huge), codes(-one_huge), codes(np.where(one_huge > 0, 2.0**-10, 2e-7))]
    alternating = np.where(np.arange(n) % 2, 0x7BFF, 0xFBFF).astype(np.uint16)
    vectors += [alternating, codes(np.arange(n) % 2), codes(1000 + np.arange(n) % 2)]
    return vectors


def vectors_at_steps(
    rng: np.random.Generator, p: ElementSerialLayernormParameters, count: int
) -> Vectors:
    """Return vectors whose squares are minimal or maximal for their scale, or carry far."""
    # The mean is 0, so that only the squares matter.
    signs = np.array([1] if p.rms else [1, -1])
    most = min(p.width, 12) // len(signs)
    totals = []
    for _ in range(count):
        below = int(2.0 ** rng.uniform(0, 56))
        step, code = 2 * below + EPSILON, scale_code(below)
        while step - below > 1:
            middle = (below + step) // 2
            below, step = (middle, step) if scale_code(middle) == code else (below, middle)
        totals += [step * most, step * most - 1]
    for place in range(EPSILON.bit_length(), 56):
        # The last square, or epsilon, causes a carry that propagates to the given bit.
        totals.append(int(rng.choice([3, 5, 7])) << place)
        mean = (int(rng.integers(1, 16)) << place) - int(rng.integers(1, EPSILON + 1))
        totals.append(mean * most)
    numbers = [numbers_of_squares(total, most) for total in totals]
    return [codes((row[:, np.newaxis] * signs).ravel()) for row in numbers]


def numbers_of_squares(squares: int, count: int) -> NDArray[np.float64]:
    """Return FP16 numbers whose floored squares add up to the given units of 2**-28."""
    numbers = []
    for _ in range(count):
        # The largest number that does not exceed the remaining sum.
        root = isqrt((squares << 20) + (1 << 20) - 1)
        places = max(root.bit_length() - 11, 0)
        number = min(root >> places << places, int(65504 / UNIT))
        squares -= number * number >> 20
        numbers.append(number * UNIT)
    return np.array(numbers)


def vectors_of_ties(
    rng: np.random.Generator, p: ElementSerialLayernormParameters, count: int
) -> Vectors:
    """Return vectors whose scale is a power of two: subnormal results are ties or next to ties."""
    n = min(p.width, 12) // 4 * 4
    vectors = []
    for _ in range(count if n else 0):
        deviation = 2.0 ** rng.integers(1, 12)
        # A quarter of the elements determine the deviation.
        large = 2 * deviation * rng.choice([1, -1], n // 4)
        small = rng.integers(-4096, 4097, n - n // 4).astype(np.float64)
        # Half a unit below the smallest normal number: a carry clears the mantissa.
        small[0] = 1023.5 * deviation * rng.choice([1, -1])
        vectors.append(codes(rng.permutation(np.concatenate([large, small * UNIT]))))
    return vectors


def undefined_vectors(p: ElementSerialLayernormParameters) -> Vectors:
    """Return vectors with an infinity or a NaN."""
    n = min(p.width, 9)
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
    lengths = rng.integers(1, min(p.width, 300) + 1, count)
    lengths[::3] = rng.integers(1, 4, len(lengths[::3])).clip(max=p.width)
    return [
        codes(rng.normal(rng.normal(0, 1), 1, length) * 2.0 ** rng.uniform(-14, 12))
        for length in lengths
    ]


def results(vectors: Vectors, p: ElementSerialLayernormParameters) -> Fields:
    """Return the expected outputs."""
    value = np.concatenate([layernorm(vector, p) for vector in vectors])
    return {"value": value, "last": last_of(vectors)}


def bench_for(
    dut: Any, salt: str, source: str = "none", sink: str = "none"
) -> SerialBench[Vectors]:
    """Return a bench with the unit's streams."""
    p = catalog_parameters()
    dut.clear_undefined.value = 0
    return SerialBench(
        dut,
        salt,
        source,
        sink,
        inputs={"elements": p.element_layout},
        outputs={"normalised": p.element_layout},
        offered=lambda vectors: {"elements": elements_of(vectors)},
        expected=lambda vectors: {"normalised": results(vectors, p)},
    )


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Hidden states of SmolLM2 at full rate, bit-exact, without a flag."""
    bench = bench_for(dut, "real_states")
    vectors = real_vectors(catalog_parameters(), 16 if context()["full"] else 3)
    await bench.run(vectors)
    assert read(dut.undefined) == 0
    tensors = f"SmolLM2 layers {LAYERS}, {len(vectors)} hidden states"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Long vectors back to back: one element in and one out in every cycle."""
    p = catalog_parameters()
    bench = bench_for(dut, "full_rate")
    # The longest latency: the smallest elements, whose normalisation takes the most steps.
    n = min(p.width, 1024)
    vectors = [np.arange(n).astype(np.uint16) for _ in range(4)]
    cycles = await bench.run(vectors)
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
    await bench.run(edge_vectors(catalog_parameters()))
    assert read(dut.undefined) == 0


@cocotb.test()
async def steps_and_ties(dut: Any) -> None:
    """Cases in which the last bit of a sum decides on its scale, or of a product on its result."""
    bench = bench_for(dut, "steps_and_ties")
    rng, p = bench.bench.numpy_rng, catalog_parameters()
    await bench.run(vectors_at_steps(rng, p, 80) + vectors_of_ties(rng, p, 40))


@cocotb.test()
async def undefined(dut: Any) -> None:
    """NaN and infinities affect only their own vector, and set the flag."""
    bench = bench_for(dut, "undefined")
    p = catalog_parameters()
    good = edge_vectors(p)[-4:]
    mixed = [vector for bad in undefined_vectors(p) for vector in (bad, good[bad[0] % 4])]
    await bench.run(mixed)
    assert read(dut.undefined) == 1
    dut.clear_undefined.value = 1
    await bench.bench.step()
    dut.clear_undefined.value = 0
    await bench.bench.step()
    assert read(dut.undefined) == 0


stalls = stall_test(bench_for, lambda bench: random_vectors(bench.bench.numpy_rng, bench.p, 8))
resets = reset_test(
    bench_for,
    lambda bench: random_vectors(bench.bench.numpy_rng, bench.p, 8),
    longest=400,
    times=12,
)
