"""Tests that the testbenches of all accelerators with the AXI shell have in common.

Each takes a bench and a function that returns random work of an accelerator.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import cocotb
import numpy as np
from cocotb.regression import TestGenerator

from golden.shell.shell_jobs import JobError, refused
from hdl.shell.axi import Cause, Response
from testbenches.shared_tests import Condition
from testbenches.shell.axi_memory import AxiReads
from testbenches.shell.shell_bench import (
    DONE_BIT,
    ERROR_BIT,
    FLUSH,
    OKAY,
    SLVERR,
    START,
    ShellBench,
)
from testbenches.shell.shell_work import Job, Work

MakeWork = Callable[[Any, np.random.Generator], Work]
"""Returns work for the parameters of a shell."""

CODES = (Response.SLVERR.value, Response.DECERR.value, Response.EXOKAY.value)
"""Codes of errors; those of the ports take turns."""


def work_test(
    body: Callable[..., Awaitable[None]],
    make: MakeWork,
    condition: Condition,
    *patterns: str,
    module: str,
    **options: Any,
) -> TestGenerator:
    """Return a test of this module under its own name, for a testbench.

    Parameters
    ----------
    body : Callable
        The test, such as `flushes`.
    make : MakeWork
        Returns work.
    condition : Condition
        Runs to which the test applies.
    patterns : str
        Pause patterns of inputs and of outputs.
    module : str
        Name of the testbench.
    options : Any
        Further arguments of the test.
    """

    async def test(dut: Any) -> None:
        await body(ShellBench(dut, body.__name__, *patterns), make, **options)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__, test.__doc__ = module, body.__doc__
    return cocotb.test(name=body.__name__)(condition(test))


async def loaded(one: ShellBench, make: MakeWork) -> Work:
    """Reset, and load work and the addresses of its regions."""
    await one.bench.reset()
    work = make(one.p, one.bench.numpy_rng)
    one.load(work)
    await one.set_regions()
    return work


async def error_responses(one: ShellBench, make: MakeWork, *, occurs: float = 1) -> None:
    """Answer a beat of each port with an error: the job ends, and a later one is not affected.

    `occurs` is the fraction of the responses of a job that each run of the job has.
    """
    work = await loaded(one, make)
    (first, *_) = work.jobs
    await one.start(first)
    await one.finish()
    counts = {name: own.count for name, own in one.responses.items()}
    for number, port in enumerate(one.p.ports):
        name = port.name
        # A program without tables reads none.
        if not counts[name]:
            continue
        # At other addresses, a port could have another number of bursts.
        one.restore()
        one.tokens.clear()
        await one.begin(work)
        certain = max(1, int(occurs * counts[name]))
        one.responses[name].fail(one.rng.randrange(certain), CODES[number % len(CODES)])
        await one.start(first)
        await one.finish()
        address = one.responses[name].address
        assert address is not None, f"{name}: the response occurs"
        expected = JobError(CODES[number % len(CODES)], number, address)
        found = await one.error()
        assert found == expected, f"{name}: expected {expected}, got {found}"
        one.check_unwritten(skip=work.written)
        await one.clear_error()
        one.restore()
        await one.run_jobs(work)


async def regions_too_small(one: ShellBench, make: MakeWork) -> None:
    """End each region before its last word: DECERR, and no burst outside the region."""
    work = await loaded(one, make)
    p = one.p
    for region, size in p.regions.items():
        one.load(work)
        unread = 0 if region in p.program else work.unread(p, region)
        if unread >= len(one.images[region]):
            continue
        # The end of a region is a multiple of a beat.
        unit = max(size, p.data_bytes)
        one.missing = {region: (1 + -(-unread * size // unit)) * unit}
        await one.set_regions()
        for port in one.ports.values():
            port.bursts.clear() if isinstance(port, AxiReads) else port.forget()
        one.tokens.clear()
        # The last job uses the last words; it may need the jobs before it.
        for job in work.jobs:
            await one.start(job)
            await one.finish()
            if await one.read("error_cause"):
                break
        found = await one.error()
        assert region in p.ports[found.source].regions, f"{region}: {found}"
        assert found.cause == Cause.DECERR.value
        limits = {
            name: (own.first, own.end - one.missing.get(name, 0))
            for name, own in one.regions.items()
        }
        for port in p.ports:
            own = [limits[name] for name in port.regions]
            for address, beats in one.ports[port.name].bursts:
                end = address + beats * p.data_bytes
                assert any(low <= address and end <= high for low, high in own), port.name
        one.check_unwritten(skip=work.written)
        one.missing = {}
        await one.clear_error()
    await one.run(work)


async def too_many_words(one: ShellBench, make: MakeWork) -> None:
    """Request more words of a program than its region or a burst has: DECERR at its first word."""
    work = await loaded(one, make)
    p, most = one.p, one.p.longest
    for part, count in ((0, most), (0, most + 1), (-1, 0xFFFF_FFFF)):
        numbers = dict.fromkeys(p.program, 0) | {p.program[part]: count}
        for number in numbers.values():
            assert await one.write("token_in", number) == OKAY
        assert await one.write("control", START) == OKAY
        await one.finish()
        assert await one.error() == refused(p, one.regions, p.program[part], 0, count)
        assert not any(port.bursts for port in one.ports.values())
        # A job that starts before the error is cleared ends at once.
        assert await one.write("token_in", 1) == OKAY
        assert await one.write("control", START) == OKAY
        await one.finish()
        assert not any(port.bursts for port in one.ports.values())
        await one.clear_error()
    # A program without words ends at once.
    await one.start(Job({name: [] for name in p.program}))
    await one.finish()
    assert await one.read("error_cause") == 0
    await one.run(work)


async def commands_during_work(one: ShellBench, make: MakeWork) -> None:
    """Refuse a second start, a new address and an unaligned one; the job is not affected."""
    await one.bench.reset()
    work = make(one.p, one.bench.numpy_rng)
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


async def flushes(one: ShellBench, make: MakeWork, *, longest: int = 1500) -> None:
    """Flush in the middle of a job: all bursts complete, and a later job is not affected."""
    work = await loaded(one, make)
    for _ in range(8):
        one.load(work)
        await one.set_regions()
        await one.start(work.jobs[0])
        await one.bench.step(one.rng.randint(1, longest))
        assert await one.write("control", FLUSH) == OKAY
        await one.finish()
        assert await one.read("error_cause") == 0
        assert await one.read("token_levels") == one.p.token_depth
        one.check_unwritten(skip=work.written)
    await one.run(work)


async def resets(one: ShellBench, make: MakeWork, *, times: int = 6, longest: int = 1500) -> None:
    """Reset in the middle of bursts, with the memory: a later job is not affected."""
    work = make(one.p, one.bench.numpy_rng)
    for _ in range(times):
        await one.bench.reset()
        one.load(work)
        await one.set_regions()
        await one.start(work.jobs[0])
        await one.bench.step(one.rng.randint(1, longest))
    await one.bench.reset()
    await one.run(work)
