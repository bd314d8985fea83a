"""Bench of an accelerator with the AXI shell: the memory, the host's accesses, and jobs."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from golden.shell.shell_jobs import JobError, Region, program_words
from hdl.shell.axi import PAGE_BYTES
from hdl.shell.register_map import registers
from testbenches.bench import Bench, catalog_parameters
from testbenches.shell.axi_lite_host import LiteHost
from testbenches.shell.axi_memory import AxiReads, AxiWrites, SparseMemory
from testbenches.shell.shell_work import Job, Work
from testbenches.streams import Port

TIMEOUT = 200_000
"""Cycles after which a job of small dimensions must have ended."""

SLOWEST = 16
"""Cycles per ideal cycle of a job after which a longer one must have ended.

The ports of AXI may be narrower than the accelerator's own.
"""

POLL = 20
"""Cycles between two reads of the status."""

OKAY, SLVERR = 0, 2
START, FLUSH = 1, 2
BUSY = 1
DONE_BIT, ERROR_BIT = 1, 2


class ImageMemory(SparseMemory):
    """A memory with images of regions; it records the bytes that are written outside them.

    Members
    -------
    regions : dict[str, Region]
        Places of the images.
    strays : dict[int, int]
        Address and value of each byte that was written outside all regions.
    """

    def __init__(self, salt: int = 0) -> None:
        super().__init__(salt)
        self.regions: dict[str, Region] = {}
        self.images: dict[str, bytearray] = {}
        # A memory writes through `written`; the initial value of a byte is the parent's.
        self.strays: dict[int, int] = {}
        self.written: Any = self

    def place(self, regions: Mapping[str, Region]) -> None:
        """Replace all regions by zeros at new places."""
        self.regions = dict(regions)
        self.images = {name: bytearray(one.end - one.first) for name, one in regions.items()}
        self.strays.clear()

    def read(self, address: int, count: int) -> bytes:
        """Return a number of bytes from an address."""
        for name, one in self.regions.items():
            if one.first <= address and address + count <= one.end:
                return bytes(self.images[name][address - one.first : address - one.first + count])
        return super().read(address, count)

    def get(self, address: int, initial: int) -> int:
        """Return the byte at an address outside all regions."""
        return self.strays.get(address, initial)

    def __setitem__(self, address: int, value: int) -> None:
        for name, one in self.regions.items():
            if one.first <= address < one.end:
                self.images[name][address - one.first] = value
                return
        self.strays[address] = value


class Responses:
    """Responses of one port, of which one may be an error.

    Members
    -------
    count : int
        Responses so far.
    failing : tuple[int, int] | None
        Number of the response that is an error, and its code.
    address : int | None
        Address of the error.
    """

    def __init__(self) -> None:
        self.count = 0
        self.failing: tuple[int, int] | None = None
        self.address: int | None = None

    def fail(self, number: int, code: int) -> None:
        """Fail one response, counted from now."""
        self.failing, self.address = (self.count + number, code), None

    def __call__(self, address: int) -> int:
        """Return the code of the next response."""
        number, self.count = self.count, self.count + 1
        if self.failing is None or self.failing[0] != number:
            return 0
        self.address = address
        return self.failing[1]


class ShellBench:
    """An accelerator with the shell between a memory and a host.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of what enters the design, and of what it outputs.
    latency : int
        Latency of the memory in cycles.
    """

    def __init__(
        self, dut: Any, salt: str, source: str = "none", sink: str = "none", *, latency: int = 6
    ) -> None:
        self.p: Any = catalog_parameters()
        self.bench = bench = Bench(dut, salt, timeout=TIMEOUT)
        self.rng = bench.rng
        self.memory = ImageMemory(self.rng.getrandbits(16))
        pauses = bench.pauses(source), bench.pauses(sink)
        self.host: LiteHost = bench.add(LiteHost(bench, "s_axi_", pauses))
        self.interrupt = Port(dut.interrupt_request)
        self.offsets = {one.name: one.offset for one in registers(self.p.registers)}
        self.responses = {port.name: Responses() for port in self.p.ports}
        self.ports: dict[str, AxiReads | AxiWrites] = {}
        for port in self.p.ports:
            settings: dict[str, Any] = {
                "data_bytes": self.p.data_bytes,
                "memory": self.memory,
                "latency": latency,
                "respond": self.responses[port.name],
            }
            patterns = (sink, sink, source) if port.writes else (sink, source)
            settings["pauses"] = tuple(bench.pauses(one) for one in patterns)
            if port.writes:
                settings["late"] = True
            kind = AxiWrites if port.writes else AxiReads
            self.ports[port.name] = bench.add(kind(bench, f"m_axi_{port.name}_", **settings))
        self.images: dict[str, Any] = {}
        self.tokens: list[int] = []
        self.missing: dict[str, int] = {}

    @property
    def regions(self) -> dict[str, Region]:
        """Places of all regions."""
        return self.memory.regions

    def load(self, work: Work) -> None:
        """Place the images at random aligned addresses, many of them near a page."""
        self.images = work.images(self.p)
        unit, regions = self.p.data_bytes, {}
        place = self.rng.randrange(1 << self.p.axi_address_bits - 2) // PAGE_BYTES * PAGE_BYTES
        for name in self.rng.sample(list(self.images), len(self.images)):
            place += unit * self.rng.choice([1, 7, PAGE_BYTES // unit - 1])
            end = place + -(-self.images[name].size // unit) * unit
            regions[name] = Region(place, end)
            place = end
        self.memory.regions = regions
        self.restore()

    def restore(self) -> None:
        """Write the initial words of all regions, which keep their places."""
        self.memory.place(self.regions)
        for name, words in self.images.items():
            self.memory.images[name][: words.size] = words.tobytes()

    async def write_offset(self, offset: int, value: int) -> int:
        """Write a register; return the response."""
        self.host.start_write(offset, value, 0b1111)
        await self.bench.run(until=lambda: self.host.written is not None)
        assert self.host.written is not None
        return self.host.written

    async def read_offset(self, offset: int) -> tuple[int, int]:
        """Return a register, and the response."""
        self.host.start_read(offset)
        await self.bench.run(until=lambda: self.host.answer is not None)
        assert self.host.answer is not None
        return self.host.answer

    async def pass_cycles(self, cycles: int) -> None:
        """Run a number of cycles."""
        await self.bench.step(cycles)

    async def write(self, name: str, value: int) -> int:
        """Write a register by its name; return the response."""
        return await self.write_offset(self.offsets[name], value)

    async def read(self, name: str) -> int:
        """Return a register by its name, which must be readable."""
        value, response = await self.read_offset(self.offsets[name])
        assert response == OKAY, f"a read of {name} must be accepted"
        return value

    async def set_regions(self) -> None:
        """Write the addresses of all regions, of which some may end too early."""
        for number, (name, one) in enumerate((name, self.regions[name]) for name in self.p.regions):
            addresses = one.first, one.end - self.missing.get(name, 0)
            for offset, address in enumerate(addresses):
                base = f"base_{2 * number + offset}"
                assert await self.write(f"{base}_low", address % (1 << 32)) == OKAY
                assert await self.write(f"{base}_high", address >> 32) == OKAY

    async def begin(self, work: Work) -> None:
        """Clear the state that earlier jobs left in the accelerator."""
        if work.on_chip:
            assert await self.write("control", FLUSH) == OKAY
            await self.finish()

    async def start(self, job: Job) -> None:
        """Write a program and its length, and start it."""
        for name in self.p.program:
            words = program_words(job.words[name], self.p.regions[name])
            self.memory.images[name][: words.size] = words.tobytes()
            assert await self.write("token_in", len(words)) == OKAY
        assert await self.write("control", START) == OKAY

    async def finish(self, ideal_cycles: int = 0) -> None:
        """Wait for the end of the job, and receive the tokens; no burst is in flight afterwards."""
        most = max(TIMEOUT, SLOWEST * ideal_cycles)
        limit = self.bench.cycle + most
        while status := await self.read("status"):
            # A flush discards the tokens.
            if status == BUSY:
                await self.receive()
            await self.bench.step(POLL)
            assert self.bench.cycle < limit, f"a job must end within {most} cycles"
        await self.receive()
        for name, port in self.ports.items():
            assert port.idle, f"{name}: all bursts are complete at the end of a job"

    async def receive(self) -> None:
        """Read all output tokens."""
        for _ in range(await self.read("token_levels") >> 16):
            self.tokens.append(await self.read("token_out"))

    async def error(self) -> JobError:
        """Read the error registers."""
        cause = await self.read("error_cause")
        low, high = [await self.read(f"error_address_{part}") for part in ("low", "high")]
        return JobError(cause & 3, cause >> 8, low | high << 32)

    async def clear_error(self) -> None:
        """Clear the error."""
        assert await self.write("interrupt_status", DONE_BIT | ERROR_BIT) == OKAY
        assert await self.read("error_cause") == 0

    async def cycles(self) -> int:
        """Read the cycles of the last job."""
        low = await self.read("cycles_low")
        return low | await self.read("cycles_high") << 32

    async def run(self, work: Work) -> list[int]:
        """Load and run all jobs, and compare all results; return the cycles of each job."""
        self.load(work)
        await self.set_regions()
        return await self.run_jobs(work)

    async def run_jobs(self, work: Work) -> list[int]:
        """Run all jobs of a work that is loaded, and compare all results."""
        self.tokens.clear()
        found = []
        await self.begin(work)
        for job in work.jobs:
            await self.start(job)
            await self.finish(work.ideal_cycles)
            found.append(await self.cycles())
        assert await self.read("error_cause") == 0, "a job without errors reports none"
        self.check(work)
        return found

    def check(self, work: Work) -> None:
        """Compare tokens and the whole memory with the golden model."""
        tokens = [one for job in work.jobs for one in job.tokens]
        expected = np.array(work.arranged([one or 0 for one in tokens]), np.int64)
        found = np.array(work.arranged(self.tokens), np.int64)
        if len(found) == len(expected):
            found[[one is None for one in tokens]] = 0
        self.bench.compare("tokens", expected, found)
        self.check_memory(work)

    def check_memory(self, work: Work) -> None:
        """Compare the whole memory with the golden model."""
        results = work.results(self.p, self.images)
        for name, words in results.items():
            found = np.frombuffer(self.memory.images[name], np.uint8)[: words.size]
            found = found.reshape(words.shape)
            if np.ma.isMaskedArray(words):
                found = np.where(np.ma.getmaskarray(words), words.data, found)
                words = words.data
            words, found = (work.comparable(self.p, name, one) for one in (words, found))
            self.bench.compare(f"bytes of {name}", words, found)
        self.check_unwritten(skip=results)

    def check_unwritten(self, skip: Iterable[str] = ()) -> None:
        """Compare the regions that neither host nor job writes, and all other memory."""
        for name, words in self.images.items():
            if name not in (*skip, *self.p.program):
                found = np.frombuffer(self.memory.images[name], np.uint8)[: words.size]
                self.bench.compare(f"bytes of {name}", words.reshape(-1), found)
        assert not self.memory.strays, f"bytes outside all regions: {self.memory.strays}"
