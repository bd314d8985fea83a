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
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states
from testbenches.unit_bench import Fields, UnitBench

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


def results(items: Fields) -> Fields:
    """Return the results of items."""
    found = look_up(items["values"], items["modes"], catalog_parameters().table)
    return {
        "intervals": found.interval,
        "active": found.active,
        "slopes": found.slope,
        "intercepts": found.intercept,
    }


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> UnitBench[Fields]:
    """Connect the unit's streams and its model."""
    p = catalog_parameters()
    return UnitBench(
        dut,
        salt,
        source,
        sink,
        inputs={"scores": p.scores_layout},
        outputs={"lines": p.lines_layout},
        offered=lambda items: {"scores": items},
        expected=lambda items: {"lines": results(items)},
    )


def random_items(bench: UnitBench[Fields], count: int) -> Fields:
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
    cycles = await bench.run(items)
    bench.bench.record(cycles=cycles, ideal_cycles=len(items["values"]))


@cocotb.test()
async def every_mode_at_the_bounds(dut: Any) -> None:
    """Run each bound, its neighbours, NaNs and infinities against each mode."""
    bench = bench_for(dut, "every_mode_at_the_bounds")
    modes, scores = np.meshgrid(np.arange(catalog_parameters().intervals), bounds())
    await bench.run(items_of(scores.reshape(-1), modes.reshape(-1)))


@cocotb.test()
async def real(dut: Any) -> None:
    """Run scores of SmolLM2; the mode of each is the interval of its neighbour."""
    bench = bench_for(dut, "real")
    scores = real_scores()
    p = catalog_parameters()
    modes = look_up(np.roll(scores, 1), np.zeros_like(scores), p.table).interval
    await bench.run(items_of(scores, modes))
    tensors = f"SmolLM2 layers {LAYERS}, head {HEAD}, scores of token {TOKENS}"
    bench.bench.record(cycles=0, ideal_cycles=0, tensors=tensors)


stalls = stall_test(bench_for, lambda bench: random_items(bench, 200))
resets = reset_test(bench_for, lambda bench: random_items(bench, 60), longest=40, times=12)
