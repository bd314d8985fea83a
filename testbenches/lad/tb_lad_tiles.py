"""Testbench of LAD's tiles: interleaved heads, linear layers on all tiles, one memory."""

from typing import Any

import cocotb

from golden.lad.lad_tile import equation_7, schedule_bound
from testbenches.applicable import only_if
from testbenches.lad.outside import REQUESTS, WRITES
from testbenches.lad.tile_bench import (
    MANY,
    OUTPUTS,
    LadTileBench,
    Load,
    check_all_active,
    check_any_counts,
    check_interruptions,
    check_members,
    random_load,
    real_work,
    short_load,
)
from testbenches.lad.vectors import LAYERS
from testbenches.lad.vectors import prepare as prepare
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
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
    answers = await bench.run(Load(real_work(bench, length, groups=min(len(bench.groups), GROUPS))))
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
@only_if(
    lambda run: run.parameters.tile.slots >= MANY and not run.four_states,
    f"heads have less than {MANY} positions, or in four states, it takes long",
)
async def members(dut: Any) -> None:
    """Run steps with many members of key centres, whose scores are rescaled."""
    await check_members(LadTileBench(dut, "members"))


@cocotb.test()
@only_if(
    lambda run: run.parameters.tile.vector.head_size < 128,
    "of the paper's tiles it takes over 40 minutes, and the bench of one tile has it",
)
async def all_active(dut: Any) -> None:
    """Make every position active in every step of all tiles, whose rows leave no room."""
    await check_all_active(LadTileBench(dut, "all_active", "none", "bursty"))


def steps_of_a_reset() -> int:
    """Return the number of steps around a reset."""
    return 4 if four_states() else 16


stalls = stall_test(
    LadTileBench,
    lambda bench: random_load(bench, 60, most=GROUPS, tasks=6, rows=6),
    pairs=PAIRS,
)
# One output is so rarely ready that all queues upstream are full.
slow_stream = slow_stream_test(
    LadTileBench,
    lambda bench: short_load(bench, 40),
    streams=[*OUTPUTS, *REQUESTS, *WRITES],
    patterns=["filling"],
    condition=only_if(
        lambda run: run.parameters.tile.vector.head_size < 16 and not run.four_states,
        "of large heads, or in four states, it takes long",
    ),
)
resets = reset_test(
    LadTileBench,
    lambda bench: random_load(bench, steps_of_a_reset(), most=GROUPS),
    begun=lambda bench: random_load(bench, steps_of_a_reset(), most=GROUPS, tasks=1, rows=2),
    longest=lambda _bench: 40 * steps_of_a_reset(),
    times=lambda _bench: 1 if four_states() else 3,
)
