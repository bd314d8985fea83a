"""Testbench of the piecewise linear exponential: all scores, real scores, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.lad.piecewise_linear_exp import look_up
from golden.llm import open_trace
from testbenches.bench import catalog_parameters
from testbenches.lad.vectors import LAYERS, TOKENS
from testbenches.lad.vectors import prepare as prepare
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES, four_states

HEAD = 4


def fp16(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the codes of values in FP16."""
    return values.astype(np.float16).view(np.uint16).astype(np.int64)


def real_scores() -> NDArray[np.int64]:
    """Return the last scores of a head of SmolLM2 in some layers, less their maximum."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    rows = np.stack([trace.attention_trace(layer, HEAD).scores[-1] for layer in LAYERS])
    return fp16(rows - rows.max(1, keepdims=True)).reshape(-1)


def bounds() -> NDArray[np.int64]:
    """Return the codes at and next to each bound, and NaNs and infinities."""
    p = catalog_parameters()
    near = np.array(p.bound_codes)[:, np.newaxis] + np.arange(-1, 2)
    special = [0x0000, 0x8000, 0x0001, 0x8001, 0x7C00, 0xFC00, 0x7C01, 0xFC01, 0x7E00, 0xFFFF]
    return np.concatenate([near.reshape(-1), special])


def items_of(scores: NDArray[np.int64], modes: NDArray[np.int64] | int) -> Fields:
    """Fill lanes with scores; repeat the first ones to fill the last transfer."""
    lanes = catalog_parameters().lanes
    items = -(-len(scores) // lanes)
    modes = np.broadcast_to(modes, len(scores))
    return {
        "values": np.resize(scores, items * lanes).reshape(items, lanes),
        "modes": np.resize(modes, items * lanes).reshape(items, lanes),
    }


async def run_scores(bench: StreamBench, items: Fields) -> int:
    """Run scores and compare all results; return the cycles."""
    cycles = await bench.run(items)
    found = look_up(items["values"], items["modes"], catalog_parameters().table)
    bench.check(
        {
            "intervals": found.interval,
            "active": found.active,
            "slopes": found.slope,
            "intercepts": found.intercept,
        }
    )
    return cycles


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> StreamBench:
    """Connect the unit's streams."""
    p = catalog_parameters()
    return StreamBench(
        dut,
        salt,
        source=("scores", p.scores_layout),
        sink=("lines", p.lines_layout),
        pauses=(source, sink),
    )


def random_items(bench: StreamBench, count: int) -> Fields:
    """Return scores of random magnitudes, and random modes."""
    rng, p = bench.bench.numpy_rng, catalog_parameters()
    scores = fp16(-rng.exponential(4, count * p.lanes))
    return items_of(scores, rng.integers(0, p.intervals, count * p.lanes))


@cocotb.test()
async def every_score(dut: Any) -> None:
    """Run all 65,536 codes at full rate; modes alternate."""
    bench = bench_for(dut, "every_score")
    scores = np.arange(0, 1 << 16, 64 if four_states() else 1)
    items = items_of(scores, np.arange(len(scores)) % catalog_parameters().intervals)
    cycles = await run_scores(bench, items)
    bench.bench.record(cycles=cycles, ideal_cycles=len(items["values"]))


@cocotb.test()
async def every_mode_at_the_bounds(dut: Any) -> None:
    """Run each bound, its neighbours, NaNs and infinities against each mode."""
    bench = bench_for(dut, "every_mode_at_the_bounds")
    modes, scores = np.meshgrid(np.arange(catalog_parameters().intervals), bounds())
    await run_scores(bench, items_of(scores.reshape(-1), modes.reshape(-1)))


@cocotb.test()
async def real(dut: Any) -> None:
    """Run scores of SmolLM2; the mode of each is the interval of its neighbour."""
    bench = bench_for(dut, "real")
    scores = real_scores()
    p = catalog_parameters()
    modes = look_up(np.roll(scores, 1), np.zeros_like(scores), p.table).interval
    await run_scores(bench, items_of(scores, modes))
    tensors = f"SmolLM2 layers {LAYERS}, head {HEAD}, scores of token {TOKENS}"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random scores under every pair of stall patterns."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, sink)
    await run_scores(bench, random_items(bench, 200))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state may remain."""
    bench = bench_for(dut, "resets", "random", "bursty")
    items = random_items(bench, 60)
    await bench.disturb(items, times=12, longest=40)
    await run_scores(bench, items)
