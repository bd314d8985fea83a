"""Each memory serves all ports with their own data, in order, and none waits for another one.

The SDRAM is a model of LiteDRAM's native port with random stalls and latencies.
"""

import random
from collections import deque
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.board.block_memory import BlockMemory
from hdl.board.sdram_memory import SdramMemory
from hdl.shell.axi import Response

SIZE, WIDTH, PORTS = 4096, 4, 3
MEMORIES = (BlockMemory, SdramMemory)
LIMIT = 80_000
"""Cycles after which a test that takes at most half of them has no end."""


class Port:
    """Drives a port; each transfer is recorded in the cycle in which it occurs."""

    def __init__(self, port: Any, rng: random.Random, share: float) -> None:
        self.port, self.rng, self.share = port, rng, share
        self.open: deque[tuple[int, int]] = deque()
        self.offered = False

    def pauses(self) -> bool:
        return self.rng.random() < self.share


class Reader(Port):
    """Reads bursts (address, beats); `found` has the data and the response of each beat."""

    def __init__(self, port: Any, rng: random.Random, share: float) -> None:
        super().__init__(port, rng, share)
        self.found: list[tuple[int, int]] = []
        self.left: deque[int] = deque()

    def drive(self, ctx: Any) -> None:
        if self.open and (self.offered or not self.pauses()):
            self.offered = True
            ctx.set(self.port.araddr, self.open[0][0])
            ctx.set(self.port.arlen, self.open[0][1] - 1)
        ctx.set(self.port.arvalid, self.offered)
        ctx.set(self.port.rready, not self.pauses())

    def sample(self, ctx: Any) -> None:
        port = self.port
        if self.offered and ctx.get(port.arready):
            self.left.append(self.open.popleft()[1])
            self.offered = False
        if ctx.get(port.rvalid) and ctx.get(port.rready):
            self.left[0] -= 1
            assert bool(ctx.get(port.rlast)) == (self.left[0] == 0)
            if not self.left[0]:
                self.left.popleft()
            self.found.append((ctx.get(port.rdata), ctx.get(port.rresp).value))

    @property
    def done(self) -> bool:
        return not self.open and not self.left


class Writer(Port):
    """Writes bursts (address, beats) of random words with random strobes; `words` has them."""

    def __init__(self, port: Any, rng: random.Random, share: float) -> None:
        super().__init__(port, rng, share)
        self.words: deque[tuple[int, int, bool]] = deque()
        self.responses: list[int] = []
        self.expected = 0
        self.word = False

    def add(self, address: int, beats: int, content: bytearray) -> None:
        self.open.append((address, beats))
        self.expected += 1
        for number in range(beats):
            word, strobe = self.rng.getrandbits(8 * WIDTH), self.rng.getrandbits(WIDTH)
            self.words.append((word, strobe, number == beats - 1))
            for lane in range(WIDTH):
                place = address + number * WIDTH + lane
                if strobe >> lane & 1 and place < SIZE:
                    content[place] = word >> 8 * lane & 255

    def drive(self, ctx: Any) -> None:
        port = self.port
        if self.open and (self.offered or not self.pauses()):
            self.offered = True
            ctx.set(port.awaddr, self.open[0][0])
            ctx.set(port.awlen, self.open[0][1] - 1)
        ctx.set(port.awvalid, self.offered)
        self.word = bool(self.words) and (self.word or not self.pauses())
        if self.word:
            for name, value in zip(("wdata", "wstrb", "wlast"), self.words[0], strict=True):
                ctx.set(getattr(port, name), value)
        ctx.set(port.wvalid, self.word)
        ctx.set(port.bready, not self.pauses())

    def sample(self, ctx: Any) -> None:
        port = self.port
        if self.offered and ctx.get(port.awready):
            self.open.popleft()
            self.offered = False
        if self.word and ctx.get(port.wready):
            self.words.popleft()
            self.word = False
        if ctx.get(port.bvalid) and ctx.get(port.bready):
            self.responses.append(ctx.get(port.bresp).value)

    @property
    def done(self) -> bool:
        return len(self.responses) == self.expected


class NativePort:
    """A memory at a native port; each command, data and answer has a random delay.

    As in LiteDRAM, the data of a write may be accepted before, with or after its command, and must
    be offered until then; answers of reads are not refused.
    """

    def __init__(self, native: Any, rng: random.Random, share: float) -> None:
        self.native, self.rng, self.share = native, rng, share
        self.content: dict[int, int] = {}
        # Commands in order: whether each is a write, and its address.
        self.orders: deque[tuple[bool, int]] = deque()
        self.seen = False

    def passes(self) -> bool:
        return self.rng.random() >= self.share

    def drive(self, ctx: Any) -> None:
        native, order = self.native, (ctx.get(self.native.cmd_we), ctx.get(self.native.cmd_addr))
        offered = ctx.get(native.cmd_valid)
        if offered and not self.seen and order[0]:
            self.orders.append(order)
        self.seen = bool(offered)
        writes, address = self.orders[0] if self.orders else (False, 0)
        owed = any(one for one, _address in self.orders)
        assert ctx.get(native.wdata_valid) == owed, "data are offered until accepted, and once"
        ctx.set(native.cmd_ready, offered and len(self.orders) < 4 and self.passes())
        ctx.set(native.wdata_ready, bool(writes) and self.passes())
        ctx.set(native.rdata_valid, bool(self.orders) and not writes and self.passes())
        # Without a valid answer, the data are those of another word.
        word = self.content.get(address, 0)
        ctx.set(native.rdata_data, word if ctx.get(native.rdata_valid) else self.rng.getrandbits(8))

    def sample(self, ctx: Any) -> None:
        native = self.native
        if ctx.get(native.rdata_valid):
            self.orders.popleft()
        if ctx.get(native.wdata_ready):
            _writes, address = self.orders.popleft()
            strobe, word = ctx.get(native.wdata_we), ctx.get(native.wdata_data)
            mask = sum(255 << 8 * lane for lane in range(WIDTH) if strobe >> lane & 1)
            self.content[address] = self.content.get(address, 0) & ~mask | word & mask
        if ctx.get(native.cmd_valid) and ctx.get(native.cmd_ready):
            self.seen = False
            if not ctx.get(native.cmd_we):
                self.orders.append((False, ctx.get(native.cmd_addr)))


class Bench:
    """A memory between its masters, each with its own share of pauses."""

    def __init__(self, kind: type, seed: int, shares: tuple[float, ...]) -> None:
        self.rng = random.Random(seed)
        memory: Any = kind(
            memory_bytes=SIZE, address_bits=14, data_bytes=WIDTH, readers=PORTS, writers=PORTS
        )
        natives = [memory.native] if kind is SdramMemory else []
        self.natives = [NativePort(native, self.rng, max(shares) / 2) for native in natives]
        self.readers = [Reader(memory.reads[i], self.rng, shares[i]) for i in range(PORTS)]
        self.writers = [Writer(memory.writes[i], self.rng, shares[i]) for i in range(PORTS)]
        self.simulator = Simulator(memory)
        self.simulator.add_clock(1e-6)
        self.cycle = 0
        self.simulator.add_testbench(self._run, background=True)

    async def _run(self, ctx: Any) -> None:
        while True:
            for one in (*self.readers, *self.writers):
                one.drive(ctx)
            for native in self.natives:
                native.drive(ctx)
            for one in (*self.readers, *self.writers, *self.natives):
                one.sample(ctx)
            await ctx.tick()
            self.cycle += 1

    def finish(self, *ports: Any) -> None:
        while not all(one.done for one in ports):
            self.simulator.advance()
            assert self.cycle < LIMIT, "a port waits for another one"

    def read_all(self, reader: Reader) -> bytes:
        """Return the whole memory, read in bursts of many lengths."""
        reader.found.clear()
        first = 0
        while first < SIZE:
            beats = min(self.rng.choice([1, 2, 5, 16, 256]), (SIZE - first) // WIDTH)
            reader.open.append((first, beats))
            first += beats * WIDTH
        self.finish(reader)
        assert {response for _word, response in reader.found} == {Response.OKAY.value}
        return b"".join(word.to_bytes(WIDTH, "little") for word, _response in reader.found)


@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.0), (0.5, 0.0, 0.6)])
@pytest.mark.parametrize("kind", MEMORIES)
def test_all_ports_access_the_same_bytes(kind: type, shares: tuple[float, ...]) -> None:
    """Each writer has a third of the memory; then all readers read all of it at the same time."""
    bench, content = Bench(kind, 1, shares), bytearray(SIZE)
    for writer in bench.writers:
        # Without a full write, a byte would have no defined value.
        part = SIZE // WIDTH // PORTS + 1
        first = bench.writers.index(writer) * part
        place, end = first, min(first + part, SIZE // WIDTH)
        rng_bits, writer.rng.getrandbits = writer.rng.getrandbits, lambda bits: (1 << bits) - 1
        writer.add(place * WIDTH, min(256, end - place), content)
        writer.add((place + min(256, end - place)) * WIDTH, end - place - 256, content)
        writer.rng.getrandbits = rng_bits
        for _ in range(20):
            beats = bench.rng.choice([1, 3, 16])
            writer.add(bench.rng.randrange(place, end - beats) * WIDTH, beats, content)
    bench.finish(*bench.writers)
    for writer in bench.writers:
        assert set(writer.responses) == {Response.OKAY.value}
    for reader in bench.readers:
        assert bench.read_all(reader) == content
    for reader in bench.readers:
        reader.found.clear()
        for _ in range(20):
            beats = bench.rng.choice([1, 2, 9])
            reader.open.append((bench.rng.randrange(SIZE // WIDTH - beats) * WIDTH, beats))
    wanted = [list(reader.open) for reader in bench.readers]
    bench.finish(*bench.readers)
    for reader, bursts in zip(bench.readers, wanted, strict=True):
        places = [a + n * WIDTH for a, beats in bursts for n in range(beats)]
        words = [int.from_bytes(content[place : place + WIDTH], "little") for place in places]
        assert [word for word, _response in reader.found] == words


@pytest.mark.parametrize("kind", MEMORIES)
def test_stalled_ports_do_not_stall_others(kind: type) -> None:
    """A reader that accepts no data and a writer that sends none: the others proceed."""
    bench, content = Bench(kind, 2, (1.0, 0.0, 0.0)), bytearray(SIZE)
    stalled_reader, stalled_writer = bench.readers[0], bench.writers[0]
    stalled_reader.pauses = lambda: False
    stalled_reader.open.append((0, 16))
    stalled_writer.pauses = lambda: False
    stalled_writer.open.append((64, 4))
    bench.finish()
    for _ in range(30):
        bench.simulator.advance()
    stalled_reader.pauses = lambda: True
    bench.writers[1].add(0, 256, content)
    bench.finish(bench.writers[1])
    bench.readers[1].open.append((0, 256))
    bench.finish(bench.readers[1])
    assert not stalled_writer.open and not stalled_writer.responses


@pytest.mark.parametrize("kind", MEMORIES)
def test_bursts_outside_the_memory_are_refused_and_write_nothing(kind: type) -> None:
    bench, content = Bench(kind, 3, (0.2, 0.2, 0.2)), bytearray(SIZE)
    writer, reader = bench.writers[1], bench.readers[2]
    rng_bits, writer.rng.getrandbits = writer.rng.getrandbits, lambda bits: (1 << bits) - 1
    for first in range(0, SIZE, 1024):
        writer.add(first, 256, content)
    writer.rng.getrandbits = rng_bits
    for address in (SIZE, 2 * SIZE, 3 * SIZE + 64):
        writer.add(address, 5, content)
    bench.finish(writer)
    assert writer.responses == [Response.OKAY.value] * 4 + [Response.DECERR.value] * 3
    assert bench.read_all(reader) == content
    # Each beat has the response of its own burst, also if the next one waits at the port.
    reader.found.clear()
    bursts = [(SIZE + 4, 3), (0, 2), (2 * SIZE, 1), (8, 1)] * 20
    reader.open += bursts
    bench.finish(reader)
    wanted = [
        (Response.OKAY if address < SIZE else Response.DECERR).value
        for address, beats in bursts
        for _ in range(beats)
    ]
    assert [response for _word, response in reader.found] == wanted
