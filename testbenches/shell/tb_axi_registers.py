"""Testbench of the register block: random accesses and events, AXI4-Lite rules, stalls, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.shell.axi_registers import ALL_BYTES, RegisterModel
from hdl.shell.register_map import AxiRegistersParameters, registers
from testbenches.bench import Bench, catalog_parameters
from testbenches.shared_tests import reset_test, stall_test
from testbenches.shell.axi_lite_host import LiteHost
from testbenches.streams import Port, Stream, four_states

ACCESSES = 250
"""Random accesses of a test."""


class Accelerator:
    """The accelerator's side of the block: errors, tokens, the end of work; a part of a bench.

    Parameters
    ----------
    bench : Bench
        Clock and design.
    p : AxiRegistersParameters
        Numbers of addresses, sources and tokens.

    Members
    -------
    taken : list[int]
        Tokens that were taken.
    started : int | None
        Cycle of the last start.
    flushed : int | None
        First cycle of the last flush.
    starts, clears : int
        Number of starts, and of commands to clear the errors.
    """

    def __init__(self, bench: Bench, p: AxiRegistersParameters) -> None:
        dut = bench.dut
        self.bench, self.p = bench, p
        self.finish, self.idle, self.errors = (
            Port(port) for port in (dut.finish, dut.idle, dut.errors)
        )
        self.start, self.flush, self.clear_errors = (
            Port(port) for port in (dut.start, dut.flush, dut.clear_errors)
        )
        self.tokens_in, self.tokens_out = Stream(dut, "tokens_in"), Stream(dut, "tokens_out")
        self.sources: dict[int, tuple[int, int]] = {}
        self.give: int | None = None
        self.takes = self.finishes = False
        self.taken: list[int] = []
        self.started: int | None = None
        self.flushed: int | None = None
        self.starts = self.clears = 0
        self.clear()

    def clear(self) -> None:
        """Return to the state after a reset."""
        self.sources.clear()
        self.give, self.takes, self.finishes = None, False, False
        self.taken.clear()
        self.started = self.flushed = None
        self.starts = self.clears = 0
        self.finish.value = self.errors.value = self.idle.value = 0
        self.tokens_in.ready.value = 0
        self.tokens_out.valid.value = 0

    def drive(self) -> None:
        """Set the inputs of this cycle."""
        width = 2 + self.p.axi_address_bits
        packed = sum(
            (cause | address << 2) << number * width
            for number, (cause, address) in self.sources.items()
        )
        self.errors.value = packed
        self.finish.value = self.finishes
        self.tokens_in.ready.value = self.takes
        self.tokens_out.valid.value = self.give is not None
        if self.give is not None:
            self.tokens_out.payload.value = self.give

    def sample(self) -> None:
        """Record the events of this cycle."""
        if self.start.value:
            self.starts += 1
            self.started = self.bench.cycle
        if self.flush.value and self.flushed is None:
            self.flushed = self.bench.cycle
        if self.clear_errors.value:
            self.clears += 1
            self.sources.clear()
        if self.takes and self.tokens_in.valid.value:
            self.taken.append(self.tokens_in.payload.value)
            self.takes = False
        if self.give is not None and self.tokens_out.ready.value:
            self.give = None
        self.finishes = False


class RegisterBench:
    """The block between a host and an accelerator.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of accesses and of responses.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: AxiRegistersParameters = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=20_000)
        self.rng = self.bench.rng
        pauses = self.bench.pauses(source), self.bench.pauses(sink)
        self.host: LiteHost = self.bench.add(LiteHost(self.bench, "s_axi_", pauses))
        self.accelerator: Accelerator = self.bench.add(Accelerator(self.bench, self.p))
        self.request, self.bases = Port(dut.interrupt_request), Port(dut.bases)
        self.model = RegisterModel(self.p)
        self.offsets = {one.name: one.offset for one in registers(self.p)}

    def offer(self, _work: int) -> None:
        """Begin a write and a read, for a reset in the middle of them."""
        self.host.start_write(self._address(), self._value(), ALL_BYTES)
        self.host.start_read(self._address())

    async def run(self, work: int) -> None:
        """Reset, make a number of random accesses and events, and compare all of them."""
        await self.bench.reset()
        self.model = RegisterModel(self.p)
        for _ in range(work // 8 if four_states() else work):
            await self.step()

    def compare(self, what: str, expected: Any, got: Any) -> None:
        """Compare a number with the model's."""
        both = (np.array([int(one)], np.uint64).view(np.int64) for one in (expected, got))
        self.bench.compare(what, *both)

    async def step(self) -> None:
        """Make one random access or event; compare all outputs."""
        choice = self.rng.random()
        if choice < 0.4:
            await self.write(self._address(), self._value(), self._strobes())
        elif choice < 0.75:
            await self.read(self._address())
        else:
            await self.event()
        await self.bench.step(2)
        width = self.p.axi_address_bits
        for number, base in enumerate(self.model.bases):
            value = self.bases.value >> number * width & (1 << width) - 1
            self.compare(f"base {number}", base, value)
        self.compare("interrupt_request", self.model.requests, self.request.value)
        self.compare("flush", self.model.flushing, self.accelerator.flush.value)

    async def write(self, address: int, value: int, strobes: int = ALL_BYTES) -> int:
        """Write; compare the response, and the commands to the accelerator."""
        accelerator = self.accelerator
        starts, clears = accelerator.starts, accelerator.clears
        before = self.model.busy
        accelerator.flushed = None
        self.host.start_write(address, value, strobes)
        await self.bench.run(until=lambda: self.host.written is not None)
        response = self.model.write(address, value, strobes)
        self.compare(
            f"response to a write of {value:#x} at {address:#x}", response, self.host.written
        )
        name = next((n for n, at in self.offsets.items() if at == address & ~3), "")
        started = name == "control" and not response and value & 3 == 1
        self.compare("starts", started, accelerator.starts - starts)
        cleared = name == "interrupt_status" and not response and bool(value & 2)
        self.compare("clears", cleared, accelerator.clears - clears)
        if self.model.flushing:
            # The FIFOs become empty, one token per cycle.
            await self.bench.step(self.p.token_depth + 2)
        if before and not self.model.busy:
            assert accelerator.started is not None and accelerator.flushed is not None
            self.model.cycles = accelerator.flushed - 1 - accelerator.started
        return response

    async def read(self, address: int) -> tuple[int, int]:
        """Read; compare value and response. The cycles of unfinished work are not compared."""
        name = next((n for n, at in self.offsets.items() if at == address & ~3), "")
        if self.model.busy and name in ("cycles_low", "cycles_high"):
            address = self.offsets["status"]
        self.host.start_read(address)
        await self.bench.run(until=lambda: self.host.answer is not None)
        assert self.host.answer is not None
        value, response = self.model.read(address)
        self.compare(f"response to a read at {address:#x}", response, self.host.answer[1])
        self.compare(f"value at {address:#x}", value, self.host.answer[0])
        return value, response

    async def event(self) -> None:
        """Let the accelerator do something, or end a flush."""
        accelerator, model, rng = self.accelerator, self.model, self.rng
        match rng.choice(["finish", "error", "give", "take", "flush"]):
            case "finish":
                accelerator.finishes = True
                cycle = self.bench.cycle
                await self.bench.step(2)
                model.finish(cycle - (accelerator.started or 0))
            case "error":
                source = rng.randrange(self.p.sources)
                if source not in accelerator.sources:
                    error = rng.randint(1, 3), rng.getrandbits(self.p.axi_address_bits)
                    accelerator.sources[source] = error
                    await self.bench.step(2)
                    if model.error is None:
                        model.error = (source, *error)
            case "give" if len(model.outputs) < self.p.token_depth and not model.flushing:
                token = rng.getrandbits(self.p.token_bits)
                accelerator.give = token
                await self.bench.step(2)
                assert accelerator.give is None, "a token must be accepted while there is room"
                model.outputs.append(token)
            case "take" if model.inputs and not model.flushing:
                accelerator.takes = True
                await self.bench.step(2)
                self.compare("token", model.inputs.popleft(), accelerator.taken[-1])
            case "flush":
                await self.end_flush()
            case _:
                pass

    async def end_flush(self) -> None:
        """Hold a flush while the masters are busy; then let it end."""
        if self.model.flushing:
            await self.bench.step(self.rng.randint(0, 5))
            self.accelerator.idle.value = 1
            await self.bench.step(self.p.token_depth + 3)
            self.model.end_flush()
        # The next flush lasts until the masters are idle.
        self.accelerator.idle.value = 0

    def _address(self) -> int:
        """Return an address: often of a register, with any low bits."""
        if self.rng.random() < 0.1:
            return self.rng.getrandbits(self.p.address_bits)
        favourites = ["control", "interrupt_status", "token_in", "token_out", "error_cause"]
        pool = favourites if self.rng.random() < 0.4 else list(self.offsets)
        return self.offsets[self.rng.choice(pool)] | self.rng.getrandbits(2)

    def _value(self) -> int:
        """Return a value to write: small, aligned or any."""
        aligned = self.rng.getrandbits(32) // self.p.alignment * self.p.alignment
        within = aligned % (1 << min(self.p.axi_address_bits, 32))
        values = [1, 1, 2, 3, self.rng.randrange(8), within, aligned, aligned + 2, 0, 4096]
        return self.rng.choice(values)

    def _strobes(self) -> int:
        """Return strobes: nearly always all."""
        return self.rng.getrandbits(4) if self.rng.random() < 0.05 else ALL_BYTES


stalls = stall_test(RegisterBench, lambda _bench: ACCESSES)
resets = reset_test(
    RegisterBench, lambda _bench: 60, longest=12, times=6, rounds=3, pauses=("none", "random")
)


@cocotb.test()
async def work(dut: Any) -> None:
    """Run work as a host does: addresses, tokens, start, interrupt, cycles, tokens."""
    one = RegisterBench(dut, "work")
    await one.bench.reset()
    at, p = one.offsets, one.p
    assert await one.read(at["digest"]) == (p.digest, 0)
    for number in range(p.bases):
        base = one.rng.getrandbits(p.axi_address_bits) // p.alignment * p.alignment
        assert await one.write(at[f"base_{number}_low"], base % (1 << 32)) == 0
        assert await one.write(at[f"base_{number}_high"], base >> 32) == 0
        assert one.model.bases[number] == base
    assert await one.write(at["interrupt_enable"], 7) == 0
    assert await one.write(at["token_in"], 5) == 0
    assert await one.write(at["control"], 1) == 0
    assert await one.write(at["control"], 1) == 2, "a second start is refused"
    assert await one.write(at["base_0_low"], 0) == 2, "addresses are constant while busy"
    await one.bench.step(300)
    one.accelerator.finishes = True
    cycle = one.bench.cycle
    await one.bench.step(3)
    one.model.finish(cycle - (one.accelerator.started or 0))
    assert one.request.value == 1
    assert (await one.read(at["cycles_low"]))[0] > 300
    assert await one.read(at["cycles_high"]) == (0, 0)
    assert await one.write(at["interrupt_status"], 1) == 0
    await one.bench.step()
    assert one.request.value == 0


@cocotb.test()
async def access_time(dut: Any) -> None:
    """Answer a read in 3 cycles."""
    one = RegisterBench(dut, "access time")
    await one.bench.reset()
    start, count = one.bench.cycle, 50
    for _ in range(count):
        await one.read(one.offsets["status"])
    cycles = one.bench.cycle - start
    one.bench.record(cycles=cycles, ideal_cycles=3 * count, tensors="none: register accesses")
    one.bench.compare("cycles", np.array([3 * count]), np.array([cycles]))
