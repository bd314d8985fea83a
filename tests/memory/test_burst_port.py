"""A design copies blocks through the burst ports, with any pauses of the memory."""

import random
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.stream.connect import connect_streams, every, fork_handshake
from hdl.unit import Unit
from testbenches.burst_memory import BurstMemory
from testbenches.streams import PAUSES

READS = BurstReadPort(address_bits=8, word_shape=20, longest=9)
WRITES = BurstWritePort(address_bits=8, word_shape=20, longest=9)
TASK = data.StructLayout({"source": 8, "target": 8, "length": range(10)})


class Copier(Unit):
    """Request a block to read and one to write; connect their words."""

    def __init__(self) -> None:
        super().__init__(
            {"tasks": In(stream.Signature(TASK)), "reads": Out(READS), "writes": Out(WRITES)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, requests = self.tasks.payload, (self.reads.requests, self.writes.requests)
        fork_handshake(m, self.tasks.valid, requests)
        m.d.comb += [
            self.tasks.ready.eq(every([request.ready for request in requests])),
            requests[0].payload.address.eq(task.source),
            requests[1].payload.address.eq(task.target),
            *(request.payload.length.eq(task.length) for request in requests),
        ]
        connect_streams(m, self.reads.words, self.writes.words)
        return m


class Handle:
    """Both cocotb's handle of a signal and the simulator object that it wraps."""

    def __init__(self, ctx: Any, signal: Any) -> None:
        self._ctx, self._signal = ctx, Value.cast(signal)
        self._handle = self

    def __len__(self) -> int:
        return len(self._signal)

    def get_signal_val_binstr(self) -> str:
        return f"{self._ctx.get(self._signal):0{len(self)}b}"

    def set_signal_val_binstr(self, _when: int, bits: str) -> None:
        self._ctx.set(self._signal, int(bits, 2))

    def set_signal_val_int(self, _when: int, value: int) -> None:
        self._ctx.set(self._signal, value)


def handles(ctx: Any, streams: dict[str, Any]) -> Any:
    return SimpleNamespace(
        **{
            f"{name}_{wire}": Handle(ctx, getattr(port, wire))
            for name, port in streams.items()
            for wire in ("payload", "valid", "ready")
        }
    )


def copy(pattern: str, tasks: list[tuple[int, int, int]], **timing: Any) -> tuple[Any, Any, int]:
    """Run tasks; return the memory before and after, and the cycles."""
    unit, rng = Copier(), random.Random(pattern)
    words = np.random.default_rng(1).integers(0, 256, (256, 3), np.uint8)
    words[:, 2] &= 15
    before, cycles = words.copy(), 0

    async def bench(ctx: Any) -> None:
        nonlocal cycles
        reads, writes = unit.reads, unit.writes
        streams = {
            "read_requests": reads.requests,
            "read_words": reads.words,
            "write_requests": writes.requests,
            "write_words": writes.words,
        }
        memory = BurstMemory(handles(ctx, streams), words)
        pauses = iter([PAUSES[pattern](random.Random(rng.random())) for _ in range(4)])
        served = memory.add_reads(
            READS, "read_requests", "read_words", (next(pauses), next(pauses)), **timing
        )
        memory.add_writes(WRITES, "write_requests", "write_words", (next(pauses), next(pauses)))
        left = [
            TASK.const(dict(zip(("source", "target", "length"), t, strict=True))) for t in tasks
        ]
        total = sum(task[2] for task in tasks)
        while left or served.beats < total:
            for part in memory.parts:
                part.drive()
            ctx.set(unit.tasks.valid, bool(left))
            if left:
                ctx.set(unit.tasks.payload, left[0])
            if left and ctx.get(unit.tasks.ready):
                left.pop(0)
            for part in memory.parts:
                part.sample()
            await ctx.tick()
            cycles += 1
            assert cycles < 20_000, "stuck"

    # The unit has no register, so the clock domain is added here.
    top: Any = Module()
    top.domains.sync = ClockDomain("sync")
    top.submodules.unit = unit
    simulator = Simulator(top)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    return before, words, cycles


@pytest.mark.parametrize("pattern", list(PAUSES))
def test_blocks_are_copied(pattern: str) -> None:
    # Targets are above the sources: no block is read after it was written.
    rng = random.Random(pattern)
    tasks, target = [], 128
    while target + 9 <= 256:
        length = rng.randint(1, 9)
        tasks.append((rng.randrange(119), target, length))
        target += length
    before, after, _cycles = copy(pattern, tasks)
    expected = before.copy()
    for source, to, length in tasks:
        expected[to : to + length] = before[source : source + length]
    assert np.array_equal(after, expected)
    assert not np.array_equal(after, before)


def test_latency_and_bandwidth() -> None:
    tasks = [(0, 128, 9), (9, 137, 9), (18, 146, 9)]
    full = copy("none", tasks, latency=10)[2]
    assert full == 1 + 10 + 27
    assert copy("none", tasks, latency=30)[2] == full + 20
    third = copy("none", tasks, latency=10, bandwidth=Fraction(1, 3))[2]
    assert third == full + 2 * 26


def test_rejects_a_burst_without_words() -> None:
    with pytest.raises(AssertionError, match="must have at least one word, at address 128"):
        copy("none", [(5, 128, 0)])


@pytest.mark.parametrize("port", [BurstReadPort, BurstWritePort])
def test_rejects_numbers_out_of_range(port: Any) -> None:
    with pytest.raises(ValueError, match="address_bits must be an integer from 1 to 64, not 0"):
        port(address_bits=0, word_shape=8, longest=4)
    with pytest.raises(ValueError, match="longest must be an integer from 1 to 1048576, not 0"):
        port(address_bits=8, word_shape=8, longest=0)
