"""Testbench of MEADOW with the AXI shell: text, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb

from golden.llm import open_trace
from hdl.shell.axi import Cause, Response
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.meadow.tb_meadow import LAYERS, TOKENS, probability_bytes
from testbenches.shell import shell_tests
from testbenches.shell.meadow_axi_work import (
    LARGE,
    MeadowWork,
    measured_works,
    random_program,
    short_work,
    text_work,
)
from testbenches.shell.shell_bench import ShellBench
from testbenches.streams import four_states

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput: that of `BurstMemory`."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.meadow.head_size < LARGE


small_only = only_if(small, "whole layers of large dimensions are long")
"""Condition of the tests of random layers."""


def prepare(p: MeadowAxiParameters) -> None:
    """Capture the tensors before the simulator starts."""
    if p.meadow.head_size >= LARGE:
        open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


@cocotb.test()
@only_if(lambda run: not run.four_states, "a whole text takes minutes")
async def full_rate(dut: Any) -> None:
    """Run whole tokens without stalls: each one equals the golden model's."""
    one = ShellBench(dut, "full rate", latency=LATENCY)
    await one.bench.reset()
    for name, work in measured_works(one.p.meadow).items():
        cycles = await one.run(work)
        tensors = "random layers" if one.p.meadow.head_size < LARGE else "SmolLM2 layer 14"
        one.bench.record(cycles=sum(cycles), ideal_cycles=work.ideal_cycles, tensors=tensors)
        record_fact("jobs", name, cycles)


@cocotb.test()
@cocotb.parametrize(number=range(len(STALLS)))
@small_only
async def stalls(dut: Any, number: int) -> None:
    """Run random blocks under pause patterns and latencies, attention by TPHS or GEMM."""
    one = ShellBench(dut, f"stalls {number}", *STALLS[number], latency=1 + 13 * number)
    rng = one.bench.numpy_rng
    await one.bench.reset()
    program, states = random_program(one.p.meadow, rng, 2)
    p, work, position = program.p, MeadowWork(program), 0
    while position < p.slots:
        tokens = min(int(rng.integers(1, p.most_tokens + 1)), p.slots - position)
        gemm = int(rng.choice([0, *probability_bytes(p)]))
        block = states[position : position + tokens]
        program.add_block(block, range(2), predict=bool(rng.random() < 0.7), gemm=gemm)
        position += tokens
        # A job may contain several blocks.
        if position == p.slots or rng.random() < 0.6:
            work.cut()
    await one.run(work)


def text(p: MeadowAxiParameters, rng: Any) -> MeadowWork:
    """Return a prompt and a step of one token."""
    return text_work(p.meadow, rng)


def short(p: MeadowAxiParameters, rng: Any) -> MeadowWork:
    """Return a job that copies hidden states."""
    return short_work(p.meadow, rng)


def prompt(p: MeadowAxiParameters, rng: Any) -> MeadowWork:
    """Return a prompt alone."""
    return text_work(p.meadow, rng, steps=0)


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    await shell_tests.error_responses(ShellBench(dut, "error_responses", "random", "none"), text)


@cocotb.test()
@small_only
async def unreadable_instruction_has_no_effect(dut: Any) -> None:
    """Answer an instruction to store states with an error: no write is requested."""
    one = ShellBench(dut, "unreadable instruction")
    await one.bench.reset()
    program, _states = random_program(one.p.meadow, one.bench.numpy_rng, 1)
    program.code.store(1, 0)
    program.code.end()
    work = MeadowWork(program)
    work.cut()
    one.load(work)
    await one.set_regions()
    beats = one.p.regions["instructions"] // one.p.data_bytes
    for beat in range(beats):
        one.responses["instructions"].fail(beat, Response.SLVERR.value)
        await one.start(work.jobs[0])
        await one.finish()
        assert (await one.error()).cause == Cause.SLVERR.value
        await one.clear_error()
    assert one.ports["state_writes"].bursts == []
    one.check_unwritten()


@cocotb.test()
@small_only
async def regions_too_small(dut: Any) -> None:
    """End each region before its last word: DECERR, and no burst outside the region."""
    await shell_tests.regions_too_small(ShellBench(dut, "regions_too_small"), text)


@cocotb.test()
@small_only
async def too_many_words(dut: Any) -> None:
    """Request more words of a program than its region or a burst has: DECERR at its first word."""
    await shell_tests.too_many_words(ShellBench(dut, "too_many_words"), text)


@cocotb.test()
@small_only
async def commands_during_work(dut: Any) -> None:
    """Refuse a second start, a new address and an unaligned one; the job is not affected."""
    one = ShellBench(dut, "commands_during_work", "none", "random")
    await shell_tests.commands_during_work(one, prompt)


@cocotb.test()
@small_only
async def corrupted_packets(dut: Any) -> None:
    """Report errors of packets as errors of MEADOW, and end the job."""
    one = ShellBench(dut, "corrupted_packets")
    rng = one.bench.numpy_rng
    await one.bench.reset()
    for how in ("cut", "lost"):
        program, states = random_program(one.p.meadow, rng, 1)
        # Some corruptions of a matrix give other weights without an error.
        for name in program.layers[0].matrices:
            if not program.errors:
                program.corrupt(0, name, rng, how)
        assert program.errors
        program.add_block(states[: min(3, program.p.most_tokens)], [0], predict=True)
        work = MeadowWork(program)
        work.cut()
        one.load(work)
        await one.set_regions()
        one.tokens.clear()
        await one.start(work.jobs[0])
        await one.finish()
        error = await one.error()
        where = Cause.UNEXPECTED.value, one.p.core_source
        assert (error.cause, error.source) == where, error
        assert error.address and not error.address & ~program.errors, error
        await one.clear_error()
    await one.run(text_work(one.p.meadow, rng))


@cocotb.test()
@small_only
async def flushes(dut: Any) -> None:
    """Flush in the middle of a job: all bursts complete, and a later job is not affected."""
    await shell_tests.flushes(ShellBench(dut, "flushes", "random", "bursty"), text)


@cocotb.test()
@only_if(lambda run: small(run) or run.four_states, "whole layers of large dimensions are long")
async def resets(dut: Any) -> None:
    """Reset in the middle of bursts, with the memory: a later job is not affected."""
    one = ShellBench(dut, "resets", "random", "bursty")
    if four_states():
        await shell_tests.resets(one, short, times=2, longest=60)
    else:
        await shell_tests.resets(one, text)
