"""Testbench of the element-serial softmax: SmolLM2's scores, special values, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.veda.functions.element_serial_softmax import LOG2_E, softmax
from hdl.veda.functions.element_serial_softmax import ElementSerialSoftmaxParameters
from testbenches.bench import catalog_parameters, context
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import read
from testbenches.unit_bench import Fields
from testbenches.veda.functions.serial_bench import SerialBench, elements_of, last_of

Heads = list[NDArray[np.uint16]]
LAYERS = (0, 14, 29)
TOKENS = 640

NAN, INFINITY, MINUS_INFINITY, LARGEST, LOWEST = 0x7E00, 0x7C00, 0xFC00, 0x7BFF, 0xFBFF


def prepare(p: ElementSerialSoftmaxParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_heads(p: ElementSerialSoftmaxParameters, lengths: int) -> Heads:
    """Return scores of SmolLM2 to the base 2: for every head, queries distributed over the text."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    heads = []
    for layer in LAYERS:
        for head in range(trace.heads):
            scores = trace.attention_trace(layer, head).scores * LOG2_E
            longest = min(p.scores, TOKENS)
            for length in np.linspace(1, longest, lengths + head % 2).astype(int):
                heads.append(codes(scores[length - 1, :length]))
    return heads


def edge_heads(p: ElementSerialSoftmaxParameters) -> Heads:
    """Return corner cases of the arithmetic: rises and distances of every size."""
    n = min(p.scores, 161)
    mixed = codes(np.random.default_rng(n).normal(0, 3, n))
    ramp, saw = np.linspace(-17, 17, n), np.arange(n) // 4 * 5.0 - np.arange(n) % 4
    # The sum's reciprocal is a power of two, so that subnormal results are ties.
    ties = codes(np.array([0, -24, -23, -22.6, -22.4, -21, -16, -25]))
    # One of the products exceeds a tie only in its last bits.
    near = [[0xC249, 0xC2E9, 0xBDDA], [0xBF03, 0xBE31, 0xC29C], [0xC105, 0xBC0D, 0xBAA8]]
    # Powers at every distance on either side of a maximum, with and without a mantissa.
    heads = [codes(np.array([0, -d, d - 0.5, d, 2 * d + 0.25])) for d in range(1, 34)]
    heads += [np.array([0, *head]) for head in near]
    heads += [codes(np.array([d, 0.75, 2 * d + 1.5])) for d in (-29, -30, -31, -32, -33)]
    heads += [codes(saw), codes(saw[::-1]), codes(-np.arange(n) / 8), ties, codes(ramp * 8)]
    heads += [np.full(n, value, np.uint16) for value in (0, 0x8000, LARGEST, LOWEST, 0x3C00, 1)]
    heads += [np.array([value], np.uint16) for value in (0, LARGEST, LOWEST, 1, 0x8001, 0xC2F1)]
    heads += [codes(ramp), codes(ramp[::-1]), np.where(mixed < 0x8000, 0, mixed)]
    for length in (1, 2, 3, p.binades + 15, p.binades + 16, p.binades + 17, n):
        heads += [mixed[:length], np.sort(mixed.view(np.float16))[:length].view(np.uint16)]
    for place in {min(place, n - 1) for place in (0, 1, 3, n - 1)}:
        one = np.full(n, LOWEST, np.uint16)
        one[place] = LARGEST
        masked = mixed.copy()
        masked[: min(place + 1, n - 1)] = MINUS_INFINITY
        heads += [one, masked, np.roll(masked, 3)]
    return [head[: p.scores].astype(np.uint16) for head in heads]


def undefined_heads(p: ElementSerialSoftmaxParameters) -> dict[str, Heads]:
    """Return heads that have no softmax, grouped by the flag that they set."""
    n = min(p.scores, 98)
    base = codes(np.random.default_rng(n).normal(0, 3, n))
    nan, infinite = [], [np.full(n, MINUS_INFINITY, np.uint16), np.array([INFINITY], np.uint16)]
    for place in {min(place, n - 1) for place in (0, 3, 31, n - 1)}:
        for value in (NAN, 0xFE00, 0x7C01, 0xFFFF):
            nan.append(base.copy())
            nan[-1][place] = value
        infinite.append(base.copy())
        infinite[-1][place] = INFINITY
    return {"nan": nan, "infinite": infinite}


def random_heads(rng: np.random.Generator, p: ElementSerialSoftmaxParameters, count: int) -> Heads:
    """Return heads of random lengths and spreads, often very short; some rise."""
    lengths = rng.integers(1, min(p.scores, 192) + 1, count)
    lengths[::3] = rng.integers(1, min(p.scores, 34) + 1, len(lengths[::3]))
    heads = []
    for index, length in enumerate(lengths):
        scores = rng.normal(0, 2.0 ** rng.uniform(-8, 6), length)
        heads.append(codes(np.sort(scores) if index % 4 == 1 else scores))
    heads[-1][-1] = MINUS_INFINITY if len(heads[-1]) > 1 else 0
    return heads


def results(heads: Heads, p: ElementSerialSoftmaxParameters) -> Fields:
    """Return the expected outputs."""
    value = np.concatenate([softmax(head, p) for head in heads])
    return {"value": value, "last": last_of(heads)}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> SerialBench[Heads]:
    """Return a bench with the unit's streams."""
    p = catalog_parameters()
    dut.clear_flags.value = 0
    return SerialBench(
        dut,
        salt,
        source,
        sink,
        inputs={"scores": p.element_layout},
        outputs={"probabilities": p.element_layout},
        offered=lambda heads: {"scores": elements_of(heads)},
        expected=lambda heads: {"probabilities": results(heads, p)},
    )


@cocotb.test()
async def real_scores(dut: Any) -> None:
    """Heads of SmolLM2's attention at full rate, bit-exact, without a flag."""
    bench = bench_for(dut, "real_scores")
    heads = real_heads(catalog_parameters(), 12 if context()["full"] else 3)
    await bench.run(heads)
    assert read(dut.flags) == 0
    tensors = f"SmolLM2 layers {LAYERS}, 9 heads, {len(heads)} rows of scores"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Long heads back to back: one score in and one probability out in every cycle."""
    p = catalog_parameters()
    bench = bench_for(dut, "full_rate")
    rng = bench.bench.numpy_rng
    whole = min(p.scores, 512)
    lengths = [whole, whole - 1, whole - whole // 16, whole]
    heads = [codes(rng.normal(0, 2, length)) for length in lengths]
    # One head rises in every score: following the maximum takes no cycles.
    heads[1] = np.sort(heads[1].view(np.float16)).view(np.uint16)
    cycles = await bench.run(heads)
    # Bound: one score per cycle, after the first head has arrived, and the latency.
    ideal = sum(lengths) + lengths[0]
    # From last score to first probability; shorter heads take longer than their scores, and a
    # buffer of one head makes the next one wait.
    latency = p.exp_stages + p.binades + p.multiply_stages + 22
    if min(lengths) >= latency and p.heads > 1:
        # The documented latency overlaps with one cycle of each.
        bench.bench.compare("cycles", np.array([ideal + latency - 1]), np.array([cycles]))
    bench.bench.record(cycles=cycles, ideal_cycles=ideal)


@cocotb.test()
async def edges(dut: Any) -> None:
    """Equal scores, one score, extreme and masked scores, every distance, short heads."""
    bench = bench_for(dut, "edges")
    await bench.run(edge_heads(catalog_parameters()))
    assert read(dut.flags) == 0


@cocotb.test()
async def undefined(dut: Any) -> None:
    """NaN and infinities affect only their own head, and set their flag."""
    bench = bench_for(dut, "undefined")
    p = catalog_parameters()
    good = edge_heads(p)[-3:]
    for index, (name, heads) in enumerate(undefined_heads(p).items()):
        mixed = [head for bad in heads for head in (bad, good[len(bad) % 3])]
        await bench.run(mixed)
        assert read(dut.flags) == 1 << index, f"flags after {name}: {read(dut.flags)}"
        dut.clear_flags.value = 1
        await bench.bench.step()
        dut.clear_flags.value = 0
        await bench.bench.step()
        assert read(dut.flags) == 0


def rising_head(p: ElementSerialSoftmaxParameters) -> Heads:
    """Return a head of rising scores, after which the unit holds its largest state."""
    return [codes(np.arange(p.scores) / 8)]


def falling_head(p: ElementSerialSoftmaxParameters) -> Heads:
    """Return a head whose maximum is its first score, where state of another head would show."""
    return [codes(-np.arange(min(p.scores, 4)) / 8)]


stalls = stall_test(
    bench_for,
    lambda bench: random_heads(bench.bench.numpy_rng, bench.p, 40 if bench.p.scores < 64 else 6),
)
resets = reset_test(
    bench_for,
    lambda bench: random_heads(bench.bench.numpy_rng, bench.p, 12),
    longest=lambda bench: min(12 * bench.p.scores, 384),
    times=12,
)
resets_of_rising_heads = reset_test(
    bench_for,
    lambda bench: falling_head(bench.p),
    begun=lambda bench: rising_head(bench.p),
    longest=lambda bench: min(4 * bench.p.scores, 768),
    rounds=lambda bench: 40 if bench.p.scores < 64 else 4,
    name="resets_of_rising_heads",
)
