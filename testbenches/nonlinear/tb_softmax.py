"""Testbench of softmax: SmolLM2's attention scores, extremes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.nonlinear.softmax import exact_softmax, quantise_scores, softmax
from hdl.nonlinear.softmax import PROBABILITY, SCORE, SoftmaxParameters
from testbenches.bench import Bench, catalog_parameters, root_mean_square
from testbenches.shared_tests import reset_test, stall_test
from testbenches.slices import full_rate_cycles, sliced
from testbenches.streams import pause_until
from testbenches.unit_bench import Fields, UnitBench

Flags = NDArray[np.bool_]
Rows = list[NDArray[np.int64]]
LAYERS = (0, 14, 29)
TOKENS = 640
LATENCY, READ_LATENCY = 10, 3
"""Cycles from a row's last slice, and from its read, to its first slice of probabilities.

With `divided` they are four and two more.
"""

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1


def prepare(p: SoftmaxParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_rows(p: SoftmaxParameters) -> Rows:
    """Return scores of SmolLM2: for every head, queries distributed over the text."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    rows = []
    for layer in LAYERS:
        for head in range(trace.heads):
            scores = trace.attention_trace(layer, head).scores
            lengths = np.linspace(1, min(p.scores, TOKENS), 12).astype(int)
            rows += [quantise_scores(scores[length - 1, :length]) for length in lengths]
    return rows


def extreme_rows(p: SoftmaxParameters) -> Rows:
    """Return extreme rows with the maximum length and with length 1."""
    n = p.scores
    ramp = np.linspace(LOWEST, HIGHEST, n).astype(np.int64)
    one_huge = np.full(n, LOWEST)
    one_huge[n // 2] = HIGHEST
    rows = [np.full(n, value) for value in (0, LOWEST, HIGHEST, 1024, 1, -1)]
    rows += [np.array([value]) for value in (0, LOWEST, HIGHEST, 1023, -5)]
    rows += [ramp, ramp[::-1], one_huge, np.roll(one_huge, n // 2 - 1), -15361 * (np.arange(n) > 0)]
    return rows


def random_rows(rng: np.random.Generator, p: SoftmaxParameters, count: int) -> Rows:
    """Return rows of random lengths and spreads; a third has at most two slices."""
    lengths = rng.integers(1, min(p.scores, 8 * p.lanes) + 1, count)
    lengths[::3] = rng.integers(1, 2 * p.lanes + 1, len(lengths[::3]))
    scales = 2.0 ** rng.uniform(0, 15, count)
    return [
        np.clip(np.rint(rng.normal(0, scale, length)), LOWEST, HIGHEST).astype(np.int64)
        for length, scale in zip(lengths, scales, strict=True)
    ]


def rising_rows(rng: np.random.Generator, p: SoftmaxParameters) -> Rows:
    """Return rows whose maximum, an exact integer, grows by 1 to 63 from one slice to the next.

    The powers of the earlier slices are shifted by that growth. Only an integer maximum shows
    whether it is rounded up too far.
    """
    one = 1 << SCORE.fraction_bits
    rows = []
    for growth in range(1, 64):
        first = one * int(rng.integers(-32, 32 - growth))
        tops = np.repeat([first, first + one * growth], p.lanes)
        below = rng.integers(0, 3 * one, 2 * p.lanes)
        below[rng.integers(p.lanes) + np.array([0, p.lanes])] = 0
        rows.append(np.maximum(tops - below, LOWEST))
    return rows


def padded(row: NDArray[np.int64], p: SoftmaxParameters) -> tuple[NDArray[np.int64], Flags]:
    """Return a row padded to whole slices, and a mask of its scores."""
    width = -(-len(row) // p.lanes) * p.lanes
    return np.resize(row, (1, width)), np.arange(width)[np.newaxis] < len(row)


def expected(rows: Rows, p: SoftmaxParameters, kept: list[Flags] | None = None) -> Fields:
    """Return the expected output of the unit, for all scores or those of `kept`."""
    whole = [padded(row, p) for row in rows]
    flags = kept or [scores for _row, scores in whole]
    results = [softmax(row, some, p) for (row, _), some in zip(whole, flags, strict=True)]
    values = np.concatenate(results, axis=1).reshape(-1, p.lanes)
    return {"values": values, "last": sliced(rows, p.lanes)["last"]}


def offered(rows: Rows, p: SoftmaxParameters, kept: list[Flags] | None = None) -> Fields:
    """Return the slices of rows, with one `keep` word per slice: all scores, or those of `kept`."""
    slices = sliced(rows, p.lanes)
    keep = np.concatenate(kept, axis=1).reshape(-1, p.lanes) if kept else slices["keep"]
    return slices | {"keep": keep @ (1 << np.arange(p.lanes, dtype=object))}


def bench_for(
    dut: Any,
    salt: str,
    source: str = "none",
    sink: str = "none",
    *,
    kept: list[Flags] | None = None,
) -> UnitBench[Rows]:
    """Attach the unit's streams and its model; `kept` has the scores of each row that count."""
    p = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={"scores": p.slice_layout},
        outputs={"probabilities": p.result_layout},
        offered=lambda rows: {"scores": offered(rows, p, kept)},
        expected=lambda rows: {"probabilities": expected(rows, p, kept)},
    )


@cocotb.test()
async def real_scores(dut: Any) -> None:
    """Run rows of SmolLM2's attention scores at full rate; compare every bit."""
    bench = bench_for(dut, "real_scores")
    rows = real_rows(catalog_parameters())
    await bench.run(rows)
    tensors = f"SmolLM2 layers {LAYERS}, 9 heads, {len(rows)} rows of scores"
    p = catalog_parameters()
    one = 1 << PROBABILITY.fraction_bits
    whole = [padded(row, p) for row in rows]
    errors = [(softmax(*row, p) / one - exact_softmax(*row))[row[1]] for row in whole]
    error = root_mean_square(np.concatenate(errors))
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors, rms_error=error)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Run rows of maximum length with one slice per cycle."""
    p = catalog_parameters()
    bench = bench_for(dut, "full_rate")
    rows = [row[: p.scores] for row in random_rows(bench.bench.numpy_rng, p, 4)]
    rows = [np.resize(row, p.scores) for row in rows]
    cycles = await bench.run(rows)
    slices = p.scores // p.lanes
    expected = full_rate_cycles(
        [slices] * len(rows),
        rows=p.rows,
        latency=LATENCY + 4 * p.divided,
        read_latency=READ_LATENCY + 2 * p.divided,
    )
    bench.bench.compare("cycles", np.array([expected]), np.array([cycles]))
    # Bound: one slice per cycle, plus the first row, which must be complete before the output.
    ideal = (len(rows) + 1) * slices
    bench.bench.record(cycles=cycles, ideal_cycles=ideal)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Run rows of equal, lowest, one huge, increasing and decreasing scores; extreme lengths."""
    bench = bench_for(dut, "extremes")
    await bench.run(extreme_rows(catalog_parameters()))


@cocotb.test()
async def rising_maxima(dut: Any) -> None:
    """Let a later slice exceed the earlier ones by every integer power of two."""
    bench = bench_for(dut, "rising_maxima")
    await bench.run(rising_rows(bench.bench.numpy_rng, catalog_parameters()))


@cocotb.test()
async def masked(dut: Any) -> None:
    """Mask random lanes, including whole slices, but keep at least one score per row."""
    p = catalog_parameters()
    rng = Bench(dut, "masked").numpy_rng
    rows = [padded(row, p)[0] for row in random_rows(rng, p, 64)]
    kept = [rng.random(row.shape) < rng.choice([0.1, 0.5, 0.9]) for row in rows]
    for flags in kept:
        flags[0, rng.integers(flags.size)] = True
    await bench_for(dut, "masked", kept=kept).run([row[0] for row in rows])


@cocotb.test()
async def stalled_output_fills_the_buffer(dut: Any) -> None:
    """Stall the output until the buffer is full of short rows, or of long rows; then accept all."""
    p = catalog_parameters()
    bench = bench_for(dut, "stalled_output")
    integers = bench.bench.numpy_rng.integers
    for length in (p.lanes, p.scores):
        rows = [integers(LOWEST, HIGHEST + 1, length) for _ in range(p.rows + 2)]
        bench.sinks["probabilities"].pauses = pause_until(
            (p.rows + 2) * -(-length // p.lanes) + 4 * LATENCY
        )
        await bench.run(rows)


stalls = stall_test(bench_for, lambda bench: random_rows(bench.bench.numpy_rng, bench.p, 40))
resets = reset_test(
    bench_for,
    lambda bench: random_rows(bench.bench.numpy_rng, bench.p, 12),
    times=12,
    longest=100,
)
