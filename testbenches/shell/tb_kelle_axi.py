"""Testbench of Kelle with the AXI shell: text, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.llm import open_trace
from golden.shell.kelle_axi import KelleProgram
from hdl.shell.axi import Cause
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.kelle.text_layers import TOKENS, layer_numbers
from testbenches.shell import shell_tests
from testbenches.shell.kelle_axi_work import KelleWork, kelle_text, text_work
from testbenches.shell.shell_bench import ShellBench
from testbenches.shell.shell_work import Job
from testbenches.streams import four_states

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""


def small(run: Run) -> bool:
    """Return whether the simulation of a layer takes seconds."""
    return run.parameters.kelle.slots <= 16


small_only = only_if(small, "whole layers of large dimensions are long")
"""Condition of the tests of random work."""


def prepare(p: KelleAxiParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=layer_numbers(p.kelle))


@cocotb.test()
@only_if(
    lambda run: not run.four_states and (small(run) or run.full),
    "whole layers take minutes: FULL=1",
)
async def full_rate(dut: Any) -> None:
    """Run tokens through layers of SmolLM2 without stalls: each one equals the golden model's."""
    one = ShellBench(dut, "full rate", latency=LATENCY)
    await one.bench.reset()
    text, states = kelle_text(one.p, one.bench.numpy_rng)
    # The first job also loads the scales and the prefill.
    work = KelleWork(one.p, text, one.p.kelle.slots, states)
    for _job in range(4 if one.p.kelle.slots <= 16 else 1):
        work.add_token(predict=one.p.kelle.vocabulary_size > 0)
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
        for _token in range(3):
            work.add_token(predict=bool(one.p.kelle.vocabulary_size and one.rng.random() < 0.5))
        work.cut()
    await one.run(work)


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    one, works = ShellBench(dut, "error_responses", "random", "none"), list[KelleWork]()

    def make(p: KelleAxiParameters, rng: np.random.Generator) -> KelleWork:
        works.append(text_work(p, rng))
        return works[-1]

    await shell_tests.error_responses(one, make)
    idle = set() if works[0].stores else {"input_reads"}
    assert {name for name, own in one.responses.items() if not own.count} == idle


regions_too_small = shell_tests.work_test(
    shell_tests.regions_too_small, text_work, small_only, module=__name__
)


def one_job(p: KelleAxiParameters, rng: np.random.Generator) -> KelleWork:
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
async def illegal_position_is_an_error(dut: Any) -> None:
    """Report a position that protects all tokens as an error of Kelle, and end the job."""
    one = ShellBench(dut, "illegal_position")
    work = await shell_tests.loaded(one, one_job)
    (job,) = work.jobs
    position = one.p.instruction_layout["position"]
    # The first step follows the scales, and two loads of each layer.
    number = 1 + 2 * one.p.kelle.layers
    legal = job.words["instructions"][number]
    wrong = legal & ~((1 << position.width) - 1 << position.offset)
    job.words["instructions"][number] = wrong
    await one.start(job)
    await one.finish()
    error = await one.error()
    assert (error.cause, error.source) == (Cause.UNEXPECTED.value, one.p.core_source), error
    # `no_victim` is the second of the errors.
    assert error.address == 2, error
    await one.clear_error()
    job.words["instructions"][number] = legal
    one.restore()
    await one.run_jobs(work)


@cocotb.test()
@only_if(
    lambda run: bool(run.parameters.kelle.layers & (run.parameters.kelle.layers - 1)),
    "no instruction has a layer too many if their number is a power of two",
)
async def illegal_layer_is_an_error(dut: Any) -> None:
    """Report a layer that does not exist as an error of Kelle: its instruction has no effect."""
    one = ShellBench(dut, "illegal_layer")
    work = await shell_tests.loaded(one, one_job)
    program = KelleProgram(one.p)
    state = work.jobs[0].words["states"][: one.p.kelle.hidden_slices]
    program.step(layer=one.p.kelle.layers, position=0, epsilon=1, state=state)
    await one.start(Job(program.words))
    await one.finish()
    error = await one.error()
    assert (error.cause, error.source) == (Cause.UNEXPECTED.value, one.p.core_source), error
    assert error.address == 1, error
    assert not one.ports["weight_reads"].bursts
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
