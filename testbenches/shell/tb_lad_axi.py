"""Testbench of LAD with the AXI shell: text, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.shell.lad_axi import LadProgram
from hdl.shell.axi import Cause
from hdl.shell.head_writes import PORTS
from hdl.shell.lad_axi_parameters import LadAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.lad import vectors
from testbenches.shell import shell_tests
from testbenches.shell.lad_axi_work import LadWork, text_work
from testbenches.shell.shell_bench import ShellBench
from testbenches.shell.shell_work import Job
from testbenches.streams import four_states

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput."""

SLOW = 1500
"""Cycles to the response of a port of writes that is slow."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.lad.tile.sfm.hidden_size < 100


small_only = only_if(small, "whole layers of large dimensions are long")
"""Condition of the tests of random work."""


def prepare(p: LadAxiParameters) -> None:
    """Capture the tensors before the simulator starts."""
    vectors.prepare(p.lad)


@cocotb.test()
@only_if(
    lambda run: not run.four_states and (small(run) or run.full),
    "whole layers take minutes: FULL=1",
)
async def full_rate(dut: Any) -> None:
    """Run tokens through layers of SmolLM2 without stalls: each one equals the golden model's."""
    one = ShellBench(dut, "full rate", latency=LATENCY)
    await one.bench.reset()
    work = LadWork(one.p, one.bench.numpy_rng)
    for _job in range(min(work.room, 4 if one.p.lad.hidden_size < 100 else 1)):
        work.add_token(predict=one.p.lad.vocabulary_size > 0)
        work.cut()
    cycles = await one.run(work)
    one.bench.record(
        cycles=sum(cycles), ideal_cycles=work.ideal_cycles, tensors="layers of SmolLM2"
    )
    record_fact("jobs", "tokens", cycles)


@cocotb.test()
@cocotb.parametrize(number=range(len(STALLS)))
@small_only
async def stalls(dut: Any, number: int) -> None:
    """Decode a text under pause patterns and latencies of the memory."""
    one = ShellBench(dut, f"stalls {number}", *STALLS[number], latency=1 + 13 * number)
    await one.bench.reset()
    work = text_work(one.p, one.bench.numpy_rng, jobs=1)
    for _job in range(0 if four_states() else 3):
        for _token in range(min(3, work.room)):
            work.add_token(predict=bool(one.p.lad.vocabulary_size and one.rng.random() < 0.5))
        work.cut()
    await one.run(work)


@cocotb.test()
@small_only
async def slow_writes(dut: Any) -> None:
    """Read what the tokens before have written, though each port of writes takes very long."""
    one = ShellBench(dut, "slow writes")
    for name in PORTS:
        await one.bench.reset()
        work = text_work(one.p, one.bench.numpy_rng, jobs=1)
        one.ports[name].latency = SLOW
        await one.run(work)
        one.ports[name].latency = LATENCY


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    one = ShellBench(dut, "error_responses", "random", "none")
    # Rows are cut into bursts by their timing: words may share beats that they did not share.
    shared = max(one.p.master(port.word_bits).lanes for port in one.p.ports)
    await shell_tests.error_responses(one, text_work, occurs=1 / shared)
    assert all(own.count for own in one.responses.values())


regions_too_small = shell_tests.work_test(
    shell_tests.regions_too_small, text_work, small_only, module=__name__
)


def one_job(p: LadAxiParameters, rng: np.random.Generator) -> LadWork:
    """Return a single job."""
    return text_work(p, rng, jobs=1)


too_many_words = shell_tests.work_test(
    shell_tests.too_many_words, one_job, small_only, module=__name__
)


commands_during_work = shell_tests.work_test(
    shell_tests.commands_during_work, one_job, small_only, "none", "random", module=__name__
)


@cocotb.test()
@small_only
async def illegal_length_is_an_error(dut: Any) -> None:
    """Report a length of 0, and one above the capacity: the token has no effect."""
    one = ShellBench(dut, "illegal_length")
    work = await shell_tests.loaded(one, one_job)
    lad = one.p.lad
    slices = work.jobs[0].words["slices"][: one.p.token_slices]
    for sample in range(lad.batch):
        # With some capacities, a longer text has no code.
        longer = lad.tile.slots + 1
        for length in (0, longer)[: 1 + (longer < 1 << lad.tile.length_shape.width)]:
            program = LadProgram(one.p)
            lengths = [1] * lad.batch
            lengths[sample] = length
            program.token(lengths, slices, predict=False)
            await one.start(Job(program.words))
            await one.finish()
            error = await one.error()
            assert (error.cause, error.source) == (Cause.UNEXPECTED.value, one.p.core_source)
            assert error.address == 1, error
            assert not one.ports["weight_reads_0"].bursts
            one.check_unwritten(skip=one.p.program)
            await one.clear_error()
    await one.run(work)


flushes = shell_tests.work_test(
    shell_tests.flushes, one_job, small_only, "random", "bursty", module=__name__, longest=6000
)


resets = shell_tests.work_test(
    shell_tests.resets,
    one_job,
    only_if(lambda run: small(run) and not run.four_states, "a text takes minutes"),
    "random",
    "bursty",
    module=__name__,
    longest=6000,
)
