"""Testbench of LAD's tile: interleaved decoding of several heads, with all write-backs."""

import copy
from typing import Any

import cocotb
import numpy as np

from golden.lad.lad_tile import LadTile, Step, equation_7, schedule_bound
from golden.lad.traffic import WORD_BITS, traffic
from hdl.lad.parameters import LadTileParameters
from testbenches.applicable import only_if
from testbenches.bench import context, record_fact
from testbenches.lad.outside import REQUESTS, WRITES
from testbenches.lad.tile_bench import (
    MANY,
    OUTPUTS,
    LadTileBench,
    Load,
    Work,
    check_all_active,
    check_any_counts,
    check_interruptions,
    check_members,
    long_steps,
    random_load,
    real_work,
    short_load,
    synthetic_steps,
)
from testbenches.lad.vectors import LAYERS
from testbenches.lad.vectors import prepare as prepare
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test

LENGTHS = (512, 1024, 2048, 4096)
"""Positions in the steady state."""

GROUPS = 3
"""Groups of heads in random work, so that each has many steps."""


@cocotb.test()
async def real_decoding(dut: Any) -> None:
    """Run SmolLM2's decoding from the first token on, all heads interleaved."""
    bench = LadTileBench(dut, "real_decoding")
    p = bench.p
    length = min(p.slots, 200 if context()["full"] else 48)
    groups = min(p.stored_heads // p.shared, 3)
    answers = await bench.run(Load(real_work(bench, length, groups=groups)))
    check_union(p, answers)
    seen = [cycle for cycle, _payload in bench.outputs.received]
    moved = [answer.moved for answer in answers]
    # Intervals of the steps after the first.
    bench.bench.record(
        cycles=seen[-1] - seen[0],
        ideal_cycles=round(sum(equation_7(p, answer) for answer in answers[1:])),
        schedule_bound=sum(schedule_bound(p, answer) for answer in answers[1:]),
        keys=sum(one.keys for one in moved),
        active=sum(one.active for one in moved),
        changed=sum(len(answer.changed) for answer in answers),
        words={what: bits / WORD_BITS for what, bits in bench.outside.carried.items()},
        rows=sum(len(one.active) + one.ahead - one.hits for one in answers),
        tensors=f"SmolLM2 layers {LAYERS}, {length} steps of {groups * p.shared} heads",
    )


def check_union(p: LadTileParameters, answers: list[Step]) -> None:
    """Require that heads use some rows, but not all, that previous heads of their group kept."""
    followers = [one for at, one in enumerate(answers) if at % p.shared]
    shared = sum(one.hits for one in followers)
    assert (shared > 0) == (p.shared > 1)
    # If a step has more active positions than room, some are fetched again.
    leaving = [one for at, one in enumerate(answers) if (at + 1) % p.shared]
    crowds = any(len(one.active) > p.kept for one in leaving)
    assert crowds <= (sum(one.crowded for one in answers) > 0)


@cocotb.test()
@only_if(
    lambda run: run.parameters.vector.head_size < 16 and not run.four_states,
    "of large heads, or in four states, it takes long",
)
async def interruptions(dut: Any) -> None:
    """Run short steps, and a linear layer in any of the cycles in which they begin."""
    await check_interruptions(LadTileBench(dut, "interruptions"))


@cocotb.test()
async def one_head_to_the_end(dut: Any) -> None:
    """Run one head alone, each step after the previous one, until its memory is full."""
    bench = LadTileBench(dut, "one_head_to_the_end")
    length = min(bench.p.slots, 60)
    await bench.run(Load(real_work(bench, length, groups=1)))


@cocotb.test()
@only_if(
    lambda run: run.parameters.vector.head_size < 16 and not run.four_states,
    "of large heads, or in four states, it takes long",
)
async def any_counts(dut: Any) -> None:
    """Run counters of all sizes, and steps that are announced long before."""
    await check_any_counts(LadTileBench(dut, "any_counts"))


@cocotb.test()
@only_if(
    lambda run: run.parameters.slots >= MANY and not run.four_states,
    f"heads have less than {MANY} positions, or in four states, it takes long",
)
async def members(dut: Any) -> None:
    """Run steps with many members of key centres, whose scores are rescaled."""
    await check_members(LadTileBench(dut, "members"))


@cocotb.test()
@cocotb.parametrize((("source", "sink"), [("none", "none"), ("bursty", "random")]))
async def all_active(dut: Any, source: str, sink: str) -> None:
    """Make every position active in every step: more than there is room for on chip."""
    await check_all_active(LadTileBench(dut, f"all_active {source} {sink}", source, sink))


@cocotb.test()
async def limited_memory(dut: Any) -> None:
    """Decode with a memory whose bandwidth is shared by all streams, as much as the paper's."""
    bench = LadTileBench(dut, "limited_memory")
    p = bench.p
    bandwidth = limited(bench)
    length = min(p.slots, 24)
    begun = bench.bench.cycle
    await bench.run(Load(real_work(bench, length, groups=min(p.stored_heads // p.shared, 2))))
    cycles = bench.bench.cycle - begun
    least = sum(bench.outside.carried.values()) / bandwidth
    assert cycles >= least
    record_fact("limited memory", "cycles", {"cycles": cycles, "of the memory": round(least)})


def limited(bench: LadTileBench) -> int:
    """Limit the memory to `head_size` words per cycle, and return the bits per cycle.

    With heads of 128 this is the paper's bandwidth per tile, a sixth of 1.5 TB/s at 1 GHz.
    """
    bits = bench.p.vector.head_size * WORD_BITS
    bench.outside.limit(bits)
    return bits


@cocotb.test()
@cocotb.parametrize(
    (
        ("trace", "memory"),
        [("SmolLM2", "unlimited"), ("synthetic", "unlimited"), ("synthetic", "limited")],
    )
)
@only_if(
    lambda run: run.full and run.parameters.vector.head_size >= 8,
    "long decodings, in the full version",
)
async def steady_state(dut: Any, trace: str, memory: str) -> None:
    """Decode nine interleaved heads at some lengths; record interval and words of a step.

    The synthetic trace has the locality that the paper reports.
    """
    bench = LadTileBench(dut, f"steady_state {trace}")
    p, name = bench.p, f"steady_state {trace}"
    if memory == "limited":
        limited(bench)
        name = f"{name}, limited memory"
    # The model decodes one head; the memory outside has nine copies of it.
    begun, heads, rounds = LadTile(parameters=p), min(p.stored_heads, 9), 3
    steps = synthetic_steps(p) if trace == "synthetic" else long_steps(p, LAYERS[1])
    for length in LENGTHS:
        if length > min(p.slots, len(steps)):
            continue
        for now in range(begun.heads[0].length, length - rounds):
            begun.step(0, *steps[now])
        there = [copy.deepcopy(begun.heads[0]) for _ in range(heads)]
        there += bench.empty()[heads:]
        # The record of active positions is on chip only after a step.
        for head in there:
            head.latest = head.latest[:0]
        work: Work = [
            (head, *steps[now]) for now in range(length - rounds, length) for head in range(heads)
        ]
        answers = await bench.run(Load(work), heads=there)
        # After the first round, until the last step begins.
        seen = [cycle for cycle, _payload in bench.outputs.received][heads:]
        later = answers[heads + 1 :]
        record_fact(
            name,
            str(length),
            {
                "cycles": (seen[-1] - seen[0]) / len(later),
                "equation_7": float(np.mean([equation_7(p, one) for one in later])),
                "schedule_bound": float(np.mean([schedule_bound(p, one) for one in later])),
                "keys": float(np.mean([one.moved.keys for one in later])),
                "exact": float(np.mean([one.precise for one in later])),
                "active": float(np.mean([len(one.active) for one in later])),
                "changed": float(np.mean([len(one.changed) for one in later])),
                "words": sum(traffic(p, later).values()) / WORD_BITS / len(later),
                # It reads all positions, and writes the new one.
                "words_of_full_attention": float(
                    np.mean([2 * p.vector.head_size * (one.active[-1] + 2) for one in later])
                ),
            },
        )


stalls = stall_test(
    LadTileBench,
    lambda bench: random_load(bench, 30, most=GROUPS, tasks=4, rows=4),
)
# One output is so rarely ready that all queues upstream are full.
slow_stream = slow_stream_test(
    LadTileBench,
    lambda bench: short_load(bench, 20),
    streams=[*OUTPUTS, *REQUESTS, *WRITES],
    patterns=["filling"],
    condition=only_if(
        lambda run: run.parameters.vector.head_size < 16 and not run.four_states,
        "of large heads, or in four states, it takes long",
    ),
)
resets = reset_test(
    LadTileBench,
    lambda bench: random_load(bench, 12, most=GROUPS),
    begun=lambda bench: random_load(bench, 12, most=GROUPS, tasks=1, rows=2),
    longest=600,
    times=4,
)
