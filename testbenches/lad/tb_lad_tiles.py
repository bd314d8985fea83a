"""Testbench of LAD's tiles: interleaved heads, linear layers on all tiles, one memory."""

from typing import Any

import cocotb

from golden.lad.lad_tile import equation_7, schedule_bound
from testbenches.applicable import only_if
from testbenches.lad.outside import REQUESTS, WRITES
from testbenches.lad.sfm.tb_special_function_module import random_rows
from testbenches.lad.tile_bench import (
    OUTPUTS,
    LadTileBench,
    check_all_active,
    check_any_counts,
    check_full_queues,
    check_interruptions,
    random_order,
    random_work,
    real_work,
)
from testbenches.lad.vectors import LAYERS
from testbenches.lad.vectors import prepare as prepare
from testbenches.streams import four_states

PAIRS = [("random", "bursty"), ("adversarial", "random"), ("bursty", "adversarial")]
"""Stall patterns of all input and all output streams."""

GROUPS = 6
"""Groups of heads in decodings, so that each has many steps."""


@cocotb.test()
async def real_decoding(dut: Any) -> None:
    """Run SmolLM2's decoding from the first token on, all heads interleaved."""
    bench = LadTileBench(dut, "real_decoding")
    length = min(bench.p.slots, 24)
    answers = await bench.run(real_work(bench, length, groups=min(len(bench.groups), GROUPS)))
    seen = [cycle for cycle, _payload in bench.outputs.received]
    # All tiles run in parallel: Equation 7 of the steps that follow each other in one tile.
    tiles = bench.outside.tiles
    ideal = sum(equation_7(bench.p, answer) for answer in answers[1:])
    scheduled = sum(schedule_bound(bench.p, answer) for answer in answers[1:])
    bench.bench.record(
        cycles=seen[-1] - seen[0],
        ideal_cycles=round(ideal / tiles),
        schedule_bound=round(scheduled / tiles),
        tensors=f"SmolLM2 layers {LAYERS}, {length} steps of each head",
    )


@cocotb.test()
@cocotb.parametrize((("source", "sink"), PAIRS))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run random decoding, with linear layers and functions in between, under stalls."""
    bench = LadTileBench(dut, f"stalls {source} {sink}", source, sink)
    rng = bench.bench.numpy_rng
    tasks = [bench.random_task() for _ in range(6)]
    rows = [random_rows(bench.p.sfm, rng, 1) for _ in range(6)]
    turns = random_order(bench, rng, 60, most=GROUPS)
    await bench.run(random_work(bench, rng, turns), tasks, rows=rows)


@cocotb.test()
@cocotb.parametrize(slow=[*OUTPUTS, *REQUESTS, *WRITES])
@only_if(
    lambda run: run.parameters.tile.vector.head_size < 16 and not run.four_states,
    "of large heads, or in four states, it takes long",
)
async def full_queues(dut: Any, slow: str) -> None:
    """Run short steps of all tiles while one output is so rarely ready that all is full."""
    await check_full_queues(dut, slow, 40)


@cocotb.test()
@only_if(
    lambda run: run.parameters.tile.vector.head_size < 16 and not run.four_states,
    "of large heads, or in four states, it takes long",
)
async def interruptions(dut: Any) -> None:
    """Run short steps of all tiles, and a linear layer in any of the cycles in which they begin."""
    await check_interruptions(LadTileBench(dut, "interruptions"))


@cocotb.test()
@only_if(
    lambda run: run.parameters.tile.vector.head_size < 16 and not run.four_states,
    "of large heads, or in four states, it takes long",
)
async def any_counts(dut: Any) -> None:
    """Run counters of all sizes, and steps that are announced long before."""
    await check_any_counts(LadTileBench(dut, "any_counts"))


@cocotb.test()
async def all_active(dut: Any) -> None:
    """Make every position active in every step of all tiles, whose rows leave no room."""
    await check_all_active(LadTileBench(dut, "all_active", "none", "bursty"))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; no state may remain."""
    bench = LadTileBench(dut, "resets", "random", "bursty")
    rng = bench.bench.numpy_rng
    rounds, steps = (1, 4) if four_states() else (3, 16)
    for _ in range(rounds):
        await bench.bench.reset()
        bench.send(random_work(bench, rng, random_order(bench, rng, steps, most=GROUPS)))
        bench.send_task(bench.random_task())
        bench.send_rows(random_rows(bench.p.sfm, rng, 2))
        for _cycle in range(bench.bench.rng.randint(1, 40 * steps)):
            await bench.bench.step()
    await bench.run(random_work(bench, rng, random_order(bench, rng, steps, most=GROUPS)))
