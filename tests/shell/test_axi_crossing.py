"""Masters reach a memory of another clock: the words are those of the model."""

import random
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from golden.shell.axi_bursts import Request, all_bursts
from golden.shell.axi_read_master import read_words
from golden.shell.axi_write_master import written_bytes
from hdl.emit import Emission
from hdl.shell.axi_crossing import AxiCrossing
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.axi_read_master import AxiReadMaster
from hdl.shell.axi_write_master import AxiWriteMaster
from testbenches.lint import lint_unit

P = AxiMasterParameters(
    address_bits=8, word_bytes=8, longest=20, axi_address_bits=13, data_bytes=4, burst_beats=8
)
PERIODS = [(10, 10), (10, 3), (3, 10)]
REQUESTS = [Request(1021, 0, 11), Request(0, 30, 1), Request(5, 200, 20)]


def byte(address: int) -> int:
    """Return the byte of the memory at an address."""
    return (address * 7 + address // 256) % 256


class Trial:
    """A master, a crossing, and a memory in the domain `memory`.

    Parameters
    ----------
    writes : bool
        Use the write master.
    periods : tuple[int, int]
        Periods of the clocks of design and memory, in nanoseconds.
    """

    def __init__(self, *, writes: bool, periods: tuple[int, int]) -> None:
        self.periods, self.rng = periods, random.Random(f"{writes} {periods}")
        self.master = (AxiWriteMaster if writes else AxiReadMaster)(parameters=P)
        self.crossing = AxiCrossing(
            address_bits=P.axi_address_bits, data_bytes=P.data_bytes, writes=writes
        )
        self.top: Any = Module()
        self.top.domains.sync = ClockDomain("sync")
        memory: Any = ClockDomain("memory", reset_less=True)
        self.top.domains.memory = memory
        self.top.submodules.master, self.top.submodules.crossing = self.master, self.crossing
        connect(self.top, self.master.m_axi, self.crossing.s_axi)
        self.top.d.comb += self.crossing.memory_clk.eq(ClockSignal("memory"))

    async def transfer(self, ctx: Any, domain: str, valid: Any, ready: Any, *values: Any) -> Any:
        """Wait for a transfer whose other side this process drives; return the values."""
        while True:
            sampled = (valid, ready, *(values or (valid,)))
            result = tuple(await ctx.tick(domain).sample(*sampled))[-len(sampled) :]
            if result[0] and result[1]:
                return result[2:]

    async def requests(self, ctx: Any) -> None:
        """Offer all requests."""
        port = self.master.port.requests
        for one in REQUESTS:
            ctx.set(self.master.base, one.base)
            ctx.set(port.payload, {"address": one.address, "length": one.length})
            ctx.set(port.valid, 1)
            await self.transfer(ctx, "sync", port.valid, port.ready)
            ctx.set(port.valid, 0)

    async def limit(self, ctx: Any) -> None:
        """Fail if the work does not end."""
        for _ in range(5000):
            await ctx.tick("sync")
        raise AssertionError("the work must end")

    def run(self, test: Any, *processes: Any) -> None:
        """Simulate until the test ends."""
        simulator = Simulator(self.top)
        simulator.add_clock(self.periods[0] * 1e-9, domain="sync")
        simulator.add_clock(self.periods[1] * 1e-9, phase=0.4e-9, domain="memory")
        for process in (self.requests, self.limit, *processes):
            simulator.add_testbench(process, background=True)
        simulator.add_testbench(test)
        simulator.run()


@pytest.mark.parametrize("periods", PERIODS)
def test_reads_cross(periods: tuple[int, int]) -> None:
    trial = Trial(writes=False, periods=periods)
    axi, words = trial.crossing.m_axi, trial.master.port.words
    bursts: list[tuple[int, int]] = []
    received: list[Any] = []

    async def memory(ctx: Any) -> None:
        while True:
            ctx.set(axi.arready, 1)
            address, length = await trial.transfer(
                ctx, "memory", axi.arvalid, axi.arready, axi.araddr, axi.arlen
            )
            ctx.set(axi.arready, 0)
            bursts.append((address, length + 1))
            for beat in range(length + 1):
                place = address + beat * P.data_bytes
                data = bytes(byte(place + number) for number in range(P.data_bytes))
                ctx.set(axi.rdata, int.from_bytes(data, "little"))
                ctx.set(axi.rlast, beat == length)
                ctx.set(axi.rvalid, 1)
                await trial.transfer(ctx, "memory", axi.rvalid, axi.rready)
                ctx.set(axi.rvalid, 0)
                while trial.rng.random() < 0.2:
                    await ctx.tick("memory")

    async def test(ctx: Any) -> None:
        total = sum(one.length for one in REQUESTS)
        while len(received) < total:
            ctx.set(words.ready, trial.rng.random() < 0.7)
            *_, valid, ready, payload = await ctx.tick().sample(
                words.valid, words.ready, words.payload
            )
            if valid and ready:
                received.append((payload.word, payload.last))
        assert not ctx.get(trial.master.error.as_value()) & 3

    trial.run(test, memory)
    expected, last = read_words(P, REQUESTS, byte)
    got = [list(word.to_bytes(P.word_bytes, "little")) for word, _last in received]
    assert got == expected.tolist()
    assert [one for _word, one in received] == last.tolist()
    assert bursts == [(one.address, one.beats) for one in all_bursts(P, REQUESTS)]


@pytest.mark.parametrize("periods", PERIODS)
def test_writes_cross(periods: tuple[int, int]) -> None:
    trial = Trial(writes=True, periods=periods)
    axi, words = trial.crossing.m_axi, trial.master.port.words
    written: list[tuple[int, int]] = []
    data = np.random.default_rng(1).integers(0, 256, (sum(r.length for r in REQUESTS), 8))

    async def memory(ctx: Any) -> None:
        while True:
            ctx.set(axi.awready, 1)
            address, length = await trial.transfer(
                ctx, "memory", axi.awvalid, axi.awready, axi.awaddr, axi.awlen
            )
            ctx.set(axi.awready, 0)
            for beat in range(length + 1):
                ctx.set(axi.wready, 1)
                value, strobe, last = await trial.transfer(
                    ctx, "memory", axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast
                )
                ctx.set(axi.wready, 0)
                assert last == (beat == length)
                for number in range(P.data_bytes):
                    if strobe >> number & 1:
                        place = address + beat * P.data_bytes + number
                        written.append((place, value >> 8 * number & 255))
            ctx.set(axi.bvalid, 1)
            await trial.transfer(ctx, "memory", axi.bvalid, axi.bready)
            ctx.set(axi.bvalid, 0)

    async def test(ctx: Any) -> None:
        for word in data:
            ctx.set(words.payload.word, int.from_bytes(bytes(word.tolist()), "little"))
            ctx.set(words.valid, 1)
            await trial.transfer(ctx, "sync", words.valid, words.ready)
            ctx.set(words.valid, 0)
        while not ctx.get(trial.master.idle):
            await ctx.tick()

    trial.run(test, memory)
    addresses, values = written_bytes(P, REQUESTS, data)
    assert written == list(zip(addresses.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("writes", [False, True])
def test_verilog_is_clean_and_has_both_clocks(writes: bool) -> None:
    unit = AxiCrossing(address_bits=16, data_bytes=4, writes=writes)
    emission = Emission(top=unit, name="axi_crossing")
    assert not lint_unit("axi_crossing", emission)
    assert {"clk", "memory_clk"} <= {port.name for port in emission.modules[-1].ports}
