"""Testbench of the KV eDRAM: SmolLM2's keys, values and inputs with refresh and collisions."""

from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from golden.kelle.edram.kv_edram import rows_of, values_of, vector_rows
from golden.llm import open_trace
from hdl.kelle.edram.kv_edram import HALVES, SIDES, KvEdramParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.script import Script, ScriptBench, Steps
from testbenches.packing import from_integers, to_integers
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Stream

LAYER = 14
SCALE = 2.0**8
"""Fixed-point scale of keys, values and inputs: Q8.8 holds all values of the trace."""


def prepare(p: KvEdramParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=640, layers=(LAYER,))


def quantise(values: np.ndarray) -> np.ndarray:
    """Round to 16-bit integers."""
    return np.clip(np.rint(values * SCALE), -(1 << 15), (1 << 15) - 1).astype(np.int64)


def real_entries(p: KvEdramParameters) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield address, row of keys and row of values, for every slot and every input vector."""
    trace = open_trace(text="prose", tokens=640, layers=(LAYER,))
    repeats = -(-p.head_size // trace.head_size)
    group = trace.heads // trace.kv_heads
    for head in range(min(p.kv_heads, 4)):
        taken = trace.attention_trace(LAYER, head % trace.kv_heads * group)
        sides = [
            rows_of(quantise(np.tile(tensor[: p.slots], repeats)[:, : p.head_size]), p)
            for tensor in (taken.k, taken.v)
        ]
        for slot in range(p.slots):
            first = p.entry(head, slot) * p.entry_words
            for word in range(p.entry_words):
                yield first + word, sides[0][slot, word], sides[1][slot, word]
    hidden, _out = trace.hidden(LAYER)
    for vector in range(p.vectors):
        x = np.resize(quantise(hidden[vector]), p.vector_size)
        keys, values = vector_rows(x, p)
        first = p.vector_entry(vector) * p.entry_words
        for word in range(len(keys)):
            yield first + word, keys[word], values[word]


class Cache(ScriptBench):
    """A bench that drives and monitors every port, and a model of the stored rows.

    The model follows all transfers at the ports. Refreshes must not change its content.

    All streams are inputs: the pair of stall patterns is that of reads and writes, and that of
    refreshes.
    """

    def __init__(self, dut: Any, salt: str, traffic: str = "none", refresh: str = "none") -> None:
        self.p: KvEdramParameters = catalog_parameters()
        self.bench = Bench(dut, f"{salt} {traffic} {refresh}")
        self.script = Script(self.bench)
        self.dut = dut
        self.width = self.p.row_layout.size
        self.sources = {}
        for side in SIDES:
            for port in ("read", "write"):
                name = f"{side}_{port}"
                self.sources[name] = self.bench.source(name, traffic)
        for half in HALVES:
            self.sources[half] = self.bench.source(half, refresh)
        self.handles = {name: Stream(dut, name) for name in self.sources}
        self.urgency = self.bench.pauses("random")
        self.urgent_always = False
        self.written: list[dict[int, int]] = [{}, {}]
        self.got: list[list[int]] = [[], []]
        self.clear()
        self.bench.add(self)

    def clear(self) -> None:
        """Discard all recorded values."""
        # Addresses of reads whose access has not begun, the latest first; then the rows due.
        self.waiting: list[list[int | None]] = [[None] * (self.p.read_cycles - 1) for _ in SIDES]
        self.due: list[int | None] = [None, None]
        self.got = [[], []]
        self.refreshed = [0, 0]
        # Refreshes of the latest cycles whose words are not yet written back.
        self.refreshing = [False] * self.p.read_cycles
        for half in HALVES:
            getattr(self.dut, f"{half}_urgent").value = 0

    def drive(self) -> None:
        """Make some refreshes urgent."""
        for half in HALVES:
            urgent = self.urgent_always or next(self.urgency)
            getattr(self.dut, f"{half}_urgent").value = int(urgent)

    def sample(self) -> None:
        """Compare strobes and rows, and follow every transfer."""
        for number, side in enumerate(SIDES):
            valid = int(getattr(self.dut, f"{side}_valid").value)
            due = self.due[number]
            where = f"cycle {self.bench.cycle}: {side}_valid"
            assert valid == (due is not None), f"{where} is {valid}, expected {int(not valid)}"
            if due is not None:
                row = int(getattr(self.dut, side).value)
                wanted, got = (np.array([value], object) for value in (due, row))
                self.bench.compare(side, wanted, got, cycles=[self.bench.cycle], show=hex)
                self.got[number].append(row)
            read, write = self.handles[f"{side}_read"], self.handles[f"{side}_write"]
            asked = int(read.payload.value) if read.transfers() else None
            *self.waiting[number], accessed = asked, *self.waiting[number]
            # The access returns old data if the same cycle writes.
            self.due[number] = None if accessed is None else self.written[number].get(accessed, 0)
            if write.transfers():
                address_row = int(write.payload.value)
                address = address_row & ((1 << self.p.address_bits) - 1)
                self.written[number][address] = address_row >> self.p.address_bits
        self.check_priorities()
        for number, half in enumerate(HALVES):
            self.refreshed[number] += self.handles[half].transfers()

    def check_priorities(self) -> None:
        """Require that a refresh waits for the ports, unless it is urgent; then the ports wait.

        Writes also wait while a refreshed word is read and written back.
        """
        ports = [self.handles[f"{side}_{port}"] for side in SIDES for port in ("read", "write")]
        asked = any(port.valid.value for port in ports)
        urgent = {half: int(getattr(self.dut, f"{half}_urgent").value) for half in HALVES}
        preempts = any(urgent[half] and self.handles[half].valid.value for half in HALVES)
        ready = {half: int(urgent[half] or not asked) for half in HALVES}
        for side in SIDES:
            ready[f"{side}_read"] = int(not preempts)
            ready[f"{side}_write"] = int(not preempts and not any(self.refreshing))
        got = {name: int(self.handles[name].ready.value) for name in ready}
        assert got == ready, f"cycle {self.bench.cycle}: ready is {got}, expected {ready}"
        refreshes = any(self.handles[half].transfers() for half in HALVES)
        self.refreshing = [refreshes, *self.refreshing[:-1]]

    def write(self, side: str, address: int, row: np.ndarray) -> None:
        """Offer a row to a write port."""
        packed = self.pack(row)
        self.sources[f"{side}_write"].send([packed << self.p.address_bits | address])

    def pack(self, row: np.ndarray) -> int:
        """Return the words of a row as the integer of the port."""
        word = 8 * self.p.word_bytes
        return sum(int(value) << word * i for i, value in enumerate(row.reshape(-1)))

    async def finish(self, *names: str) -> int:
        """Simulate until the named ports have transferred everything and all answers."""
        cycles = await self.bench.run(until=lambda: all(self.sources[n].idle for n in names))
        for _ in range(self.settling):
            await self.bench.step()
        return cycles

    @property
    def settling(self) -> int:
        """Cycles from the last transfer until its answer is compared."""
        return self.p.read_cycles + 1

    async def check(self) -> None:
        """Require an answer to each read; `sample` compares every row."""
        for number, side in enumerate(SIDES):
            # The answers to the last reads may still be due.
            due = [*self.waiting[number], self.due[number]]
            answers = len(self.got[number]) + sum(row is not None for row in due)
            taken = self.sources[f"{side}_read"].taken
            assert answers == taken, f"{taken} {side} reads, {answers} answers"

    def idle(self, *names: str) -> Steps:
        """Wait until the named ports have transferred everything and all answers."""
        yield lambda: all(self.sources[name].idle for name in names)
        last = self.bench.cycle + self.settling
        yield lambda: self.bench.cycle >= last


@cocotb.test()
@cocotb.parametrize(refresh=["none", "random"])
async def real_rows(dut: Any, refresh: str) -> None:
    """Write and read SmolLM2's keys, values and inputs, while halves are refreshed."""
    cache = Cache(dut, "real rows", refresh=refresh)
    p, bench = cache.p, cache.bench
    rows = list(real_entries(p))
    await bench.reset()
    for address, keys, values in rows:
        cache.write("keys", address, keys)
        cache.write("values", address, values)
    await cache.finish("keys_write", "values_write")
    addresses = [address for address, _keys, _values in rows]
    if refresh != "none":
        for half in HALVES:
            cache.sources[half].send(bench.rng.choices(addresses, k=len(addresses)))
    for side in SIDES:
        cache.sources[f"{side}_read"].send(addresses)
    cycles = await cache.finish("keys_read", "values_read")
    await cache.check()
    for number, side in enumerate(SIDES):
        got = cache.got[number]
        bits = from_integers(got, cache.width)
        word = 8 * p.word_bytes
        words = np.array(to_integers(bits.reshape(-1, word)), np.uint64)
        found = values_of(words.reshape(len(got), 1, 2, p.banks), p)
        wanted = values_of(np.array([row[1 + number] for row in rows])[:, np.newaxis], p)
        bench.compare(f"{side}, 16-bit values", wanted, found)
    if refresh == "none":
        bench.record(
            cycles=cycles,
            ideal_cycles=len(addresses),
            tensors=f"SmolLM2 layer {LAYER}: keys, values, hidden states",
        )
    else:
        assert min(cache.refreshed) > 0


@cocotb.test()
async def urgent_refresh_takes_every_cycle(dut: Any) -> None:
    """Sweep urgently with one word per cycle, while reads and writes are always offered."""
    cache = Cache(dut, "urgent")
    p = cache.p
    await cache.bench.reset()
    for side in SIDES:
        cache.write(side, 1, np.arange(2 * p.banks, dtype=np.uint64))
    await cache.finish("keys_write", "values_write")
    cache.urgent_always = True
    sweep = 64
    for half in HALVES:
        cache.sources[half].send([1] * sweep)
    for side in SIDES:
        cache.sources[f"{side}_read"].send([1] * 32)
        for _ in range(32):
            cache.write(side, 1, np.arange(2 * p.banks, dtype=np.uint64) + 7)
    start = cache.bench.cycle
    await cache.finish(*HALVES)
    cycles = np.array([cache.bench.cycle - start - cache.settling])
    cache.bench.compare("cycles of the sweep", np.array([sweep]), cycles)
    await cache.finish(*cache.sources)
    await cache.check()


def collisions(cache: Cache) -> Steps:
    """Read, write and refresh few addresses at random, so that all kinds of collisions occur."""
    p, rng = cache.p, cache.bench.rng
    addresses = rng.sample(range(p.words), 3)
    for side in SIDES:
        for address in addresses:
            cache.write(side, address, np.array([rng.getrandbits(8)] * (2 * p.banks)))
    yield from cache.idle("keys_write", "values_write")
    for side in SIDES:
        for _ in range(60):
            words = [rng.getrandbits(8 * p.word_bytes) for _ in range(2 * p.banks)]
            cache.write(side, rng.choice(addresses), np.array(words, np.uint64))
        cache.sources[f"{side}_read"].send(rng.choices(addresses, k=120))
    for half in HALVES:
        cache.sources[half].send(rng.choices(addresses, k=80))
    yield from cache.idle(*cache.sources)
    for side in SIDES:
        cache.sources[f"{side}_read"].send(addresses)
    yield from cache.idle(*cache.sources)
    assert cache.refreshed == [80, 80]


def reads_and_refreshes(cache: Cache) -> Steps:
    """Write four addresses, then read and refresh them, as long as a reset lets it."""
    rng = cache.bench.rng
    for side in SIDES:
        for address in range(4):
            # Each time has other rows, so that rows from before a reset are detected.
            cache.write(side, address, np.array([rng.getrandbits(8)] * (2 * cache.p.banks)))
    yield from cache.idle("keys_write", "values_write")
    for half in HALVES:
        cache.sources[half].send(rng.choices(range(4), k=20))
    for side in SIDES:
        cache.sources[f"{side}_read"].send(rng.choices(range(4), k=40))


stalls = stall_test(Cache, collisions)
resets = reset_test(
    Cache,
    collisions,
    begun=reads_and_refreshes,
    longest=60,
    times=2,
    rounds=6,
    pauses=("random", "random"),
)
