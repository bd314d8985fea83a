"""Testbench of MEADOW with the AXI shell: text, stalls, errors, regions, commands, resets."""

from typing import Any

import cocotb

from golden.llm import open_trace
from golden.shell.meadow_axi import JobError, refused
from hdl.shell.axi import Cause, Response
from hdl.shell.meadow_axi_parameters import PROGRAM, MeadowAxiParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import record_fact
from testbenches.meadow.tb_meadow import LAYERS, TOKENS, probability_bytes
from testbenches.shell.axi_memory import AxiReads
from testbenches.shell.meadow_axi_bench import (
    DONE_BIT,
    ERROR_BIT,
    FLUSH,
    OKAY,
    SLVERR,
    START,
    ShellBench,
)
from testbenches.shell.meadow_axi_work import (
    LARGE,
    Job,
    Work,
    measured_works,
    random_program,
    short_work,
    text_work,
)
from testbenches.streams import four_states

LATENCY = 24
"""Latency of the memory in cycles, in the test of the throughput: that of `BurstMemory`."""

STALLS = (("random", "bursty"), ("bursty", "adversarial"), ("adversarial", "random"))
"""Pause patterns of inputs and outputs."""


WRITTEN = (*PROGRAM, "vectors", "cache")
"""Regions that the host or a job writes."""


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
        ideal = sum(work.program.traffic.ideal)
        tensors = "random layers" if one.p.meadow.head_size < LARGE else "SmolLM2 layer 14"
        one.bench.record(cycles=sum(cycles), ideal_cycles=ideal, tensors=tensors)
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
    p, work, position = program.p, Work(program), 0
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


def error_cases(p: MeadowAxiParameters) -> list[tuple[str, int]]:
    """Return each port that the random program uses, and a code of an error for it."""
    codes = (Response.SLVERR.value, Response.DECERR.value, Response.EXOKAY.value)
    return [(port.name, codes[number % 3]) for number, port in enumerate(p.ports)]


@cocotb.test()
@small_only
async def error_responses(dut: Any) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected."""
    one = ShellBench(dut, "error_responses", "random", "none")
    await one.bench.reset()
    work = text_work(one.p.meadow, one.bench.numpy_rng)
    one.load(work)
    await one.set_regions()
    (first, *_) = work.jobs
    await one.start(first)
    await one.finish()
    counts = {name: own.count for name, own in one.responses.items()}
    for number, (name, code) in enumerate(error_cases(one.p)):
        # A program without tables reads none.
        if not counts[name]:
            continue
        # At other addresses, a port could have another number of bursts.
        one.restore()
        one.tokens.clear()
        one.responses[name].fail(one.rng.randrange(counts[name]), code)
        await one.start(first)
        await one.finish()
        address = one.responses[name].address
        assert address is not None, f"{name}: the response occurs"
        expected = JobError(code, number, address)
        found = await one.error()
        assert found == expected, f"{name}: expected {expected}, got {found}"
        one.check_unwritten(skip=WRITTEN)
        await one.clear_error()
        one.restore()
        await one.run_jobs(work)


@cocotb.test()
@small_only
async def unreadable_instruction_has_no_effect(dut: Any) -> None:
    """Answer an instruction to store states with an error: no write is requested."""
    one = ShellBench(dut, "unreadable instruction")
    await one.bench.reset()
    program, _states = random_program(one.p.meadow, one.bench.numpy_rng, 1)
    program.code.store(1, 0)
    program.code.end()
    work = Work(program)
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
    one = ShellBench(dut, "regions_too_small")
    await one.bench.reset()
    work = text_work(one.p.meadow, one.bench.numpy_rng)
    p = one.p
    for region in p.regions:
        one.load(work)
        if region not in PROGRAM and len(one.images[region]) == 1:
            continue
        unit = max(p.regions[region], p.data_bytes)
        # An image ends with a word that no program reads, and with bytes up to the next beat.
        words = 1 if region in PROGRAM else 2
        if region == "cache":
            # The end of the last head's area is not in use.
            words += p.meadow.slots * p.regions[region] // unit
        one.missing = {region: words * unit}
        await one.set_regions()
        for port in one.ports.values():
            port.bursts.clear() if isinstance(port, AxiReads) else port.forget()
        one.tokens.clear()
        # The last job writes the last states.
        await one.start(work.jobs[-1])
        await one.finish()
        found = await one.error()
        assert p.ports[found.source].region == region, f"{region}: {found}"
        assert found.cause == Cause.DECERR.value
        limits = {
            name: (own.first, own.end - one.missing.get(name, 0))
            for name, own in one.regions.items()
        }
        for port in p.ports:
            low, high = limits[port.region]
            for address, beats in one.ports[port.name].bursts:
                assert low <= address and address + beats * p.data_bytes <= high, port.name
        one.check_unwritten(skip=WRITTEN)
        one.missing = {}
        await one.clear_error()
    await one.run(work)


@cocotb.test()
@small_only
async def too_many_words(dut: Any) -> None:
    """Request more words of a program than its region or a burst has: DECERR at its first word."""
    one = ShellBench(dut, "too_many_words")
    await one.bench.reset()
    work = text_work(one.p.meadow, one.bench.numpy_rng)
    one.load(work)
    await one.set_regions()
    for part, numbers in enumerate(([1 << 20, 0], [(1 << 20) + 1, 0], [0, 0xFFFF_FFFF])):
        for number in numbers:
            assert await one.write("token_in", number) == OKAY
        assert await one.write("control", START) == OKAY
        await one.finish()
        port = ("instructions", "instructions", "matrices")[part]
        expected = refused(one.p, one.regions, port, 0, max(numbers))
        assert await one.error() == expected
        assert not any(port.bursts for port in one.ports.values())
        # A job that starts before the error is cleared ends at once.
        assert await one.write("token_in", 1) == OKAY
        assert await one.write("control", START) == OKAY
        await one.finish()
        assert not any(port.bursts for port in one.ports.values())
        await one.clear_error()
    # A program without words ends at once.
    await one.start(Job({"instructions": [], "matrices": []}))
    await one.finish()
    assert await one.read("error_cause") == 0
    await one.run(work)


@cocotb.test()
@small_only
async def commands_during_work(dut: Any) -> None:
    """Refuse a second start, a new address and an unaligned one; the job is not affected."""
    one = ShellBench(dut, "commands_during_work", "none", "random")
    await one.bench.reset()
    work = text_work(one.p.meadow, one.bench.numpy_rng, steps=0)
    one.load(work)
    assert await one.write("base_0_low", one.p.data_bytes // 2) == SLVERR
    await one.set_regions()
    assert await one.read("digest") == one.p.digest
    assert await one.write("interrupt_enable", DONE_BIT | ERROR_BIT) == OKAY
    one.tokens.clear()
    for job in work.jobs:
        await one.start(job)
        assert await one.write("control", START) == SLVERR
        assert await one.write("base_2_low", 0) == SLVERR
        assert not one.interrupt.value
        await one.finish()
        assert one.interrupt.value, "the end of a job is an interrupt"
        assert await one.read("interrupt_status") & DONE_BIT
        assert await one.write("interrupt_status", DONE_BIT) == OKAY
        assert not one.interrupt.value
    one.check(work)


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
        work = Work(program)
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
    one = ShellBench(dut, "flushes", "random", "bursty")
    await one.bench.reset()
    work = text_work(one.p.meadow, one.bench.numpy_rng)
    for _ in range(8):
        one.load(work)
        await one.set_regions()
        await one.start(work.jobs[0])
        await one.bench.step(one.rng.randint(1, 1500))
        assert await one.write("control", FLUSH) == OKAY
        await one.finish()
        assert await one.read("error_cause") == 0
        assert await one.read("token_levels") == one.p.token_depth
        one.check_unwritten(skip=WRITTEN)
    await one.run(work)


@cocotb.test()
@only_if(lambda run: small(run) or run.four_states, "whole layers of large dimensions are long")
async def resets(dut: Any) -> None:
    """Reset in the middle of bursts, with the memory: a later job is not affected."""
    one = ShellBench(dut, "resets", "random", "bursty")
    make = short_work if four_states() else text_work
    work = make(one.p.meadow, one.bench.numpy_rng)
    for _ in range(2 if four_states() else 6):
        await one.bench.reset()
        one.load(work)
        await one.set_regions()
        await one.start(work.jobs[0])
        await one.bench.step(one.rng.randint(1, 60 if four_states() else 1500))
    await one.bench.reset()
    await one.run(work)
