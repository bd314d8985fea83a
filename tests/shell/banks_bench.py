"""Bench of the emulated banks of P3-LLM in Amaranth's simulator, with a memory of any latency."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.sim import Simulator

from hdl.p3llm.pim.pim_channel import COLUMN_BITS
from hdl.shell.emulated_banks import EmulatedBanks
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.target import Target, writing_for

MOST_WAITS = 2000
"""Cycles after which a command must have been served."""


@dataclass(frozen=True)
class Access:
    """A command of the banks after some idle cycles.

    Members
    -------
    position : int
        Position, whose row is opened in an earlier cycle if it is not open.
    unit : int | None
        The only unit; None for all units.
    mask : int
        Bytes that the command writes; 0 for a read.
    data : tuple[int, ...]
        The column to write of each pseudo-channel.
    idle : int
        Cycles without an access before it.
    changed : bool
        Whether a job begins before it, and the host has changed the position.
    """

    position: int
    unit: int | None = None
    mask: int = 0
    data: tuple[int, ...] = ()
    idle: int = 0
    changed: bool = False


@dataclass
class BanksBench:
    """The banks, and a memory whose writes become visible with their responses.

    Members
    -------
    p : P3llmAxiParameters
        Dimensions of the accelerator.
    latency : int
        Cycles from a request to its first word.
    write_latency : int
        Cycles from a written word to its response.
    cycles_per_word : int
        Cycles from a word that is read to the next one.
    pauses : float
        Probability of a pause of each stream of the memory in a cycle.
    announced : Sequence[int]
        Positions that are announced at random, whether or not they are accessed.
    waits : list[int]
        Cycles in which the accelerator was disabled, of each access.
    reads : list[int]
        Positions of all words that were requested.
    """

    p: P3llmAxiParameters
    latency: int = 24
    write_latency: int = 24
    cycles_per_word: int = 1
    pauses: float = 0.0
    seed: int = 1
    announced: Sequence[int] = ()
    waits: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Fill the memory."""
        self.rng = random.Random(self.seed)
        self.bits = self.p.columns_layout.size
        self.memory = [self.rng.getrandbits(self.bits) for _ in range(self.p.positions)]
        self.expected = list(self.memory)
        self.cycle = 0
        self._words: deque[tuple[int, int, bool]] = deque()
        self._due = 0
        self._requests: deque[int] = deque()
        self._written: deque[int] = deque()
        self._responses: deque[tuple[int, int, int]] = deque()

    def run(self, accesses: Sequence[Access]) -> None:
        """Issue all accesses, and compare what is read, then the whole memory."""
        unit = EmulatedBanks(parameters=self.p)
        with writing_for(Target.FPGA):
            simulator = Simulator(unit)
        simulator.add_clock(1e-9)

        async def bench(context: Any) -> None:
            await self._issue(context, unit, accesses)

        simulator.add_testbench(bench)
        simulator.run()
        assert self.memory == self.expected

    async def _issue(self, context: Any, unit: Any, accesses: Sequence[Access]) -> None:
        rows: list[int | None] = [None, None]
        for one in accesses:
            for _ in range(one.idle):
                await self._step(context, unit, {})
            if one.changed:
                word = self.rng.getrandbits(self.bits)
                self.memory[one.position] = self.expected[one.position] = word
                context.set(unit.restart, 1)
                await self._step(context, unit, {})
                context.set(unit.restart, 0)
            row, parity = divmod(one.position >> COLUMN_BITS, 2)
            # The order of the parities changes after every 16 rows.
            parity ^= row >> 3 & 1
            if rows[parity] != row:
                banks = sum(1 << 2 * u + parity for u in range(self.p.p3llm.units))
                await self._execute(context, unit, {"activate": banks, "row": row})
                rows[parity] = row
            units = range(self.p.p3llm.units) if one.unit is None else [one.unit]
            banks = sum(1 << 2 * u + parity for u in units)
            command = {"column": one.position % (1 << COLUMN_BITS)}
            if one.mask:
                command |= {"write": banks, "mask": one.mask, "values": one.data}
            else:
                command |= {"read": banks}
            self.waits.append(await self._execute(context, unit, command))
            if one.mask:
                self._expect(one, units)
            else:
                found = context.get(unit.columns.as_value())
                assert found == self.expected[one.position], f"position {one.position}"
        # The last words are written.
        for _ in range(4 * self.latency + self.write_latency + 200):
            await self._step(context, unit, {})
        assert context.get(unit.idle) and not self._responses and not self._written

    def _expect(self, one: Access, units: Sequence[int]) -> None:
        """Write an access to the expected memory."""
        p = self.p.p3llm
        column = p.channel.unit.column_bits
        mask = sum(0xFF << 8 * byte for byte in range(column // 8) if one.mask >> byte & 1)
        for channel, word in enumerate(one.data):
            for number in units:
                place = (channel * p.units + number) * column
                old = self.expected[one.position]
                self.expected[one.position] = old & ~(mask << place) | (word & mask) << place

    async def _execute(self, context: Any, unit: Any, command: dict[str, Any]) -> int:
        """Repeat a command until it takes effect; return the cycles before."""
        for waited in range(MOST_WAITS):
            if await self._step(context, unit, command):
                return waited
        raise AssertionError(f"{command} is not served")

    async def _step(self, context: Any, unit: Any, command: dict[str, Any]) -> bool:
        """Run a cycle with a command; return whether it takes effect."""
        for name in ("activate", "read", "write", "row", "column"):
            context.set(unit.command[name], command.get(name, 0))
        context.set(unit.command.mask, command.get("mask", 0))
        for channel, word in enumerate(command.get("values", ())):
            context.set(unit.data[channel], word)
        reads, writes = unit.reads, unit.writes
        announces = bool(self.announced) and self.rng.random() < 0.1
        context.set(unit.announced.valid, announces)
        if announces:
            context.set(unit.announced.payload, self.rng.choice(self.announced))
        pauses = [self.rng.random() < self.pauses for _ in range(4)]
        there = bool(self._words) and self._words[0][0] <= self.cycle and not pauses[0]
        context.set(reads.words.valid, there)
        if there:
            _due, position, last = self._words[0]
            context.set(reads.words.payload.word, position)
            context.set(reads.words.payload.last, last)
        context.set(reads.requests.ready, not pauses[1])
        context.set(writes.requests.ready, not pauses[2])
        context.set(writes.words.ready, not pauses[3])
        while self._responses and self._responses[0][0] <= self.cycle:
            _due, position, word = self._responses.popleft()
            self.memory[position] = word
        pending = self._responses or self._requests or self._written
        context.set(unit.written, not pending)
        enable = bool(context.get(unit.enable))
        if there and context.get(reads.words.ready):
            self._words.popleft()
        if not pauses[1] and context.get(reads.requests.valid):
            self._read(
                context.get(reads.requests.payload.address),
                context.get(reads.requests.payload.length),
            )
        if not pauses[2] and context.get(writes.requests.valid):
            assert context.get(writes.requests.payload.length) == 1
            self._requests.append(context.get(writes.requests.payload.address))
        if not pauses[3] and context.get(writes.words.valid):
            self._written.append(context.get(writes.words.payload.word))
        while self._requests and self._written:
            due = self.cycle + 1 + self.write_latency
            self._responses.append((due, self._requests.popleft(), self._written.popleft()))
        await context.tick()
        self.cycle += 1
        return enable

    def _read(self, first: int, count: int) -> None:
        """Read words as they are at the time of the request."""
        assert count and first + count <= self.p.positions, "no request ends after the banks"
        self._due = max(self._due, self.cycle + 1 + self.latency)
        for number in range(first, first + count):
            self.reads.append(number)
            self._words.append((self._due, self.memory[number], number == first + count - 1))
            self._due += self.cycles_per_word
