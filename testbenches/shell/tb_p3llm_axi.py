"""Testbench of P3-LLM with the AXI shell: texts, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.shell.p3llm_axi import P3llmProgram
from hdl.shell.axi import Cause
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.shell import shell_tests
from testbenches.shell.p3llm_axi_work import P3llmWork, cached_tokens, text_work
from testbenches.shell.shell_bench import ShellBench
from testbenches.shell.shell_work import Job
from testbenches.streams import four_states

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""

OCCURS = 0.75
"""Fraction of the responses of a job that occur in each run: how many positions are read ahead
depends on the cycle of a refresh."""


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.p3llm.hidden_size < 512


small_only = only_if(small, "whole layers of large dimensions are long")
"""Condition of the tests of random work."""


@cocotb.test()
@only_if(
    lambda run: not run.four_states and (small(run) or run.full),
    "whole layers take minutes: FULL=1",
)
async def full_rate(dut: Any) -> None:
    """Run tokens without stalls: each one equals the golden model's."""
    one = ShellBench(dut, "full rate", latency=LATENCY)
    await one.bench.reset()
    work = text_work(one.p, one.bench.numpy_rng, jobs=3 if one.p.p3llm.hidden_size < 512 else 1)
    cycles = await one.run(work)
    one.bench.record(cycles=sum(cycles), ideal_cycles=work.ideal_cycles, tensors="random layers")
    record_fact("jobs", "tokens", cycles)


@cocotb.test()
@cocotb.parametrize(number=range(len(STALLS)))
@small_only
async def stalls(dut: Any, number: int) -> None:
    """Decode texts under pause patterns and latencies of the memory."""
    one = ShellBench(dut, f"stalls {number}", *STALLS[number], latency=1 + 13 * number)
    await one.bench.reset()
    rng = one.bench.numpy_rng
    jobs = 1 if four_states() else 2
    work = P3llmWork(one.p, cached_tokens(one.p, rng, 2 * jobs), rng)
    for _job in range(jobs):
        for _token in range(2):
            work.add_token(predict=bool(one.p.p3llm.vocabulary_size and one.rng.random() < 0.5))
        work.cut()
    await one.run(work)


def one_job(p: P3llmAxiParameters, rng: np.random.Generator) -> P3llmWork:
    """Return a single job."""
    return text_work(p, rng, jobs=1)


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    one = ShellBench(dut, "error_responses", "random", "none")
    await shell_tests.error_responses(one, one_job, occurs=OCCURS)
    assert all(own.count for own in one.responses.values())


@cocotb.test()
@small_only
async def regions_too_small(dut: Any) -> None:
    """End each region before its last word: DECERR, and no burst outside the region."""
    await shell_tests.regions_too_small(ShellBench(dut, "regions_too_small"), text_work)


@cocotb.test()
@small_only
async def too_many_words(dut: Any) -> None:
    """Request more words of a program than its region or a burst has: DECERR at its first word."""
    await shell_tests.too_many_words(ShellBench(dut, "too_many_words"), one_job)


@cocotb.test()
@small_only
async def commands_during_work(dut: Any) -> None:
    """Refuse a second start, a new address and an unaligned one; the job is not affected."""
    one = ShellBench(dut, "commands_during_work", "none", "random")
    await shell_tests.commands_during_work(one, one_job)


@cocotb.test()
@only_if(
    lambda run: bool(run.parameters.steps & (run.parameters.steps - 1)),
    "no instruction has a layer too many if their number is a power of two",
)
async def illegal_layer_is_an_error(dut: Any) -> None:
    """Report a layer that does not exist as an error of P3-LLM: its instruction has no effect."""
    one = ShellBench(dut, "illegal_layer")
    work = await shell_tests.loaded(one, one_job)
    program = P3llmProgram(one.p)
    state = work.jobs[0].words["states"]
    program.step(layer=one.p.steps, positions=[0] * one.p.p3llm.batch, states=state)
    await one.start(Job(program.words))
    await one.finish()
    error = await one.error()
    assert (error.cause, error.source) == (Cause.UNEXPECTED.value, one.p.core_source), error
    assert error.address == 1, error
    assert not one.ports["bank_reads"].bursts
    await one.clear_error()
    await one.run(work)


@cocotb.test()
@small_only
async def flushes(dut: Any) -> None:
    """Flush in the middle of a job: all bursts complete, and a later job is not affected."""
    one = ShellBench(dut, "flushes", "random", "bursty")
    await shell_tests.flushes(one, one_job, longest=9000)


@cocotb.test()
@only_if(lambda run: small(run) and not run.four_states, "a text takes minutes")
async def resets(dut: Any) -> None:
    """Reset in the middle of bursts, with the memory: a later job is not affected."""
    one = ShellBench(dut, "resets", "random", "bursty")
    await shell_tests.resets(one, one_job, longest=9000)
