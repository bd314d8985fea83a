"""Testbench of VEDA with the AXI shell: text, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb
import numpy as np

from hdl.shell.axi import Cause
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.shell import shell_tests
from testbenches.shell.shell_bench import ShellBench
from testbenches.shell.veda_axi_work import (
    LARGE,
    VedaWork,
    coefficients_of,
    packed,
    text_work,
    whole_work,
)
from testbenches.streams import four_states
from testbenches.veda.decode_texts import layered, mixed_layers, prompt
from testbenches.veda.decode_work import open_tokens

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput: that of `OffChipMemory`."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.veda.array.width < LARGE


small_only = only_if(small, "whole layers of large dimensions are long")
"""Condition of the tests of random work."""


def prepare(p: VedaAxiParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_tokens()


@cocotb.test()
@only_if(
    lambda run: not run.four_states and (small(run) or run.full),
    "whole layers take minutes: FULL=1",
)
async def full_rate(dut: Any) -> None:
    """Run tokens through layers of SmolLM2 without stalls: each one equals the golden model's."""
    one = ShellBench(dut, "full rate", latency=LATENCY)
    await one.bench.reset()
    p, own = one.p.veda, {"coefficients": coefficients_of(one.p)}
    works = {"tokens": layered(p, 127, 3 if p.array.width < LARGE else 1, 3, **own)}
    if p.block > 1 and p.hidden_size < 4096:
        works["prompt"] = prompt(p, p.block, max(1, min(5, p.block - 2)), 0, 3, **own)
    for name, work in works.items():
        cycles = await one.run(whole_work(one.p, work))
        one.bench.record(
            cycles=sum(cycles), ideal_cycles=work.ideal_cycles, tensors="layers of SmolLM2"
        )
        record_fact("jobs", name, cycles)


@cocotb.test()
@cocotb.parametrize(number=range(len(STALLS)))
@small_only
async def stalls(dut: Any, number: int) -> None:
    """Run random layers and attention under pause patterns and latencies of the memory."""
    one = ShellBench(dut, f"stalls {number}", *STALLS[number], latency=1 + 13 * number)
    await one.bench.reset()
    steps = 1 if four_states() else 8
    work = mixed_layers(one.bench.numpy_rng, one.p.veda, steps, coefficients=coefficients_of(one.p))
    await one.run(whole_work(one.p, work))


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    one = ShellBench(dut, "error_responses", "random", "none")
    await shell_tests.error_responses(one, text_work)


regions_too_small = shell_tests.work_test(
    shell_tests.regions_too_small, text_work, small_only, module=__name__
)


def one_job(p: VedaAxiParameters, rng: np.random.Generator) -> VedaWork:
    """Return a single job."""
    return text_work(p, rng, jobs=1)


too_many_words = shell_tests.work_test(
    shell_tests.too_many_words, one_job, small_only, module=__name__
)


commands_during_work = shell_tests.work_test(
    shell_tests.commands_during_work, one_job, small_only, "none", "random", module=__name__
)


@cocotb.test()
@only_if(
    lambda run: small(run) and run.parameters.veda.block & (run.parameters.veda.block - 1),
    "no instruction has too many tokens if their number is a power of two",
)
async def illegal_block_is_an_error(dut: Any) -> None:
    """Report a block of too many tokens as an error of VEDA, and end the job."""
    one = ShellBench(dut, "illegal_block")
    work = await shell_tests.loaded(one, one_job)
    layout = one.p.veda.instruction_layout
    (job,) = work.jobs
    wrong = job.words["instructions"][0] | packed(layout, {"last_token": one.p.veda.block})
    legal, job.words["instructions"][0] = job.words["instructions"][0], wrong
    await one.start(job)
    await one.finish()
    error = await one.error()
    # `block` is the first of the errors.
    assert (error.cause, error.source) == (Cause.UNEXPECTED.value, one.p.core_source), error
    assert error.address & 1, error
    await one.clear_error()
    job.words["instructions"][0] = legal
    one.restore()
    await one.run_jobs(work)


flushes = shell_tests.work_test(
    shell_tests.flushes, one_job, small_only, "random", "bursty", module=__name__
)


resets = shell_tests.work_test(
    shell_tests.resets,
    one_job,
    only_if(lambda run: small(run) and not run.four_states, "a text takes minutes"),
    "random",
    "bursty",
    module=__name__,
)
