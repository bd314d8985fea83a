"""Testbench of shared reads: growing contexts, any amounts, tiles that never accept, resets."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

import cocotb
import numpy as np

from golden.lad.control.shared_reads import Read, Turns, answer, answers
from hdl.lad.control.shared_reads import SharedReadsParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import PAUSES, StreamSink, four_states

OUTSIDE = 2
"""Requests queued for the memory."""

KEPT = 2
"""Latency of a memory in cycles: for the queue of requests, and for a part to its tile."""

BEHIND = 20
"""Cycles after the last part in which nothing more may be output."""

WHAT = ("tiles served", "requests", "fetched", "answered")
"""Activities that are compared in each cycle."""


def shows(sink: StreamSink, cycle: int) -> bool:
    """Return whether a sink's stream was valid in the cycle just sampled."""
    return sink.offer is not None or took(sink, cycle)


def took(sink: StreamSink, cycle: int) -> bool:
    """Return whether a sink accepted a transfer in a cycle."""
    return bool(sink.received) and sink.received[-1][0] == cycle


class Sharing:
    """The memory, and the expected activity of each port in each cycle; a part of its bench.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    asks, takes : str
        Stall patterns of the tiles' requests and of the tiles' answers.
    memory : str, optional
        Stall pattern of the memory's two streams; another one for each pair if absent.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        asks: str = "none",
        takes: str = "none",
        *,
        memory: str | None = None,
    ) -> None:
        self.p: SharedReadsParameters = catalog_parameters()
        names = list(PAUSES)
        memory = memory or names[(names.index(asks) + names.index(takes)) % len(names)]
        self.bench = bench = Bench(dut, salt)
        self.rng = bench.numpy_rng
        self.tiles = range(self.p.tiles)
        self.asked = [bench.source(f"asked_{tile}", asks) for tile in self.tiles]
        self.answered = [bench.sink(f"answered_{tile}", takes) for tile in self.tiles]
        self.requests = bench.sink("requests", memory)
        self.fetched = bench.source("fetched", memory)
        # Per tile: its requests, its expected parts, the ends of its answers, the number of
        # requests not fully answered, and the number seen by the memory.
        self.work: list[list[Read]] = []
        self.expected: list[list[int]] = []
        self.ends: list[set[int]] = []
        self.pending: list[int] = []
        self.seen: list[int] = []
        # Per tile: the cycles from which its parts are valid until they are transferred.
        self.due: list[deque[int]] = []
        # Per expected part: its tile, and the cycle from which it is accepted.
        self.owed: deque[tuple[int, int]] = deque()
        self.sent: list[tuple[int, int]] = []
        self.outside = 0
        self.turns = Turns(self.p.tiles)
        self.must: list[tuple[int, ...]] = []
        self.does: list[tuple[int, ...]] = []
        # Sampled after the streams, since it reads what they have just transferred.
        bench.add(self)
        self.clear()

    def clear(self) -> None:
        """Check the recorded activity, and discard all work."""
        if self.must:
            self.check_cycles()
        self.work = [[] for _ in self.tiles]
        self.expected = [[] for _ in self.tiles]
        self.ends = [set() for _ in self.tiles]
        self.pending, self.seen = [0 for _ in self.tiles], [0 for _ in self.tiles]
        self.due = [deque() for _ in self.tiles]
        self.owed.clear()
        self.sent.clear()
        self.outside = 0
        self.turns = Turns(self.p.tiles)

    def offer(self, reads: Sequence[Sequence[Read]]) -> None:
        """Queue requests of each tile."""
        for tile, some in enumerate(reads):
            self.ask(tile, some)

    def ask(self, tile: int, reads: Sequence[Read]) -> None:
        """Queue requests of a tile."""
        p = self.p
        self.work[tile] += reads
        given = answers(self.work[tile], tile, step=p.step, bits=p.answer_bits)
        self.ends[tile] = set(np.cumsum([len(parts) for parts in given]).tolist())
        self.expected[tile] = [part for parts in given for part in parts]
        layout: Any = p.asked_layout
        fields = ({"item": item, "amount": amount} for item, amount in reads)
        self.asked[tile].send(layout.const(one).as_value().value for one in fields)

    @property
    def lacking(self) -> int:
        """Number of tiles that lack parts."""
        both = zip(self.answered, self.expected, strict=True)
        return sum(len(sink.received) < len(parts) for sink, parts in both)

    def drive(self) -> None:
        """Do nothing: the streams drive the ports."""

    def sample(self) -> None:
        """Record each port's activity and the expected one; answer for the memory."""
        cycle, tiles = self.bench.cycle, self.tiles
        asking = [
            (source.offered or source.accepted) and pending < self.p.waiting
            for source, pending in zip(self.asked, self.pending, strict=True)
        ]
        turn = self.turns.cycle(asking, self.outside < OUTSIDE)
        offers = self.fetched.offered or self.fetched.accepted
        stand = [bool(due) and due[0] <= cycle for due in self.due]
        self.must.append(
            (
                0 if turn is None else 1 << turn,
                int(self.outside > 0 or turn is not None),
                int(offers and self.owed[0][1] <= cycle),
                sum(1 << tile for tile in tiles if stand[tile]),
            )
        )
        self.does.append(
            (
                sum(1 << tile for tile in tiles if self.asked[tile].accepted),
                int(shows(self.requests, cycle)),
                int(self.fetched.accepted),
                sum(1 << tile for tile in tiles if shows(self.answered[tile], cycle)),
            )
        )
        if self.must[-1] != self.does[-1]:
            self.check_cycles()
        self._follow(cycle, turn)

    def _follow(self, cycle: int, turn: int | None) -> None:
        """Update the model with the transfers of this cycle."""
        p = self.p
        for tile, sink in enumerate(self.answered):
            if took(sink, cycle):
                self.due[tile].popleft()
                self.pending[tile] -= len(sink.received) in self.ends[tile]
        if self.fetched.accepted:
            self.due[self.owed.popleft()[0]].append(cycle + KEPT)
        if turn is not None:
            item, amount = self.work[turn][self.asked[turn].taken - 1]
            self.pending[turn] += 1
            self.outside += 1
            self.sent.append((item, turn))
            self.owed.extend([(turn, cycle + KEPT)] * -(-amount // p.step))
        if took(self.requests, cycle):
            self.outside -= 1
            layout: Any = p.request_layout
            request = layout.from_bits(self.requests.received[-1][1])
            item, tile = request["item"], request["tile"]
            self.bench.compare(
                "request",
                np.array([self.sent[len(self.requests.received) - 1]]),
                np.array([(item, tile)]),
            )
            amount = self.work[tile][self.seen[tile]][1]
            number, self.seen[tile] = self.seen[tile], self.seen[tile] + 1
            self.fetched.send(answer((item, amount), tile, number, step=p.step, bits=p.answer_bits))

    def check_cycles(self) -> None:
        """Compare the recorded activity of each cycle since the reset."""
        start = self.bench.cycle + 1 - len(self.must)
        cycles = list(range(start, self.bench.cycle + 1))
        must, does = np.array(self.must), np.array(self.does)
        for number, name in enumerate(WHAT):
            self.bench.compare(name, must[:, number], does[:, number], cycles=cycles)
        self.must.clear()
        self.does.clear()

    async def finish(self) -> int:
        """Wait for the last part, and compare all; return the cycles until it."""
        cycles = await self.bench.run(until=lambda: not self.lacking)
        await self.bench.step(BEHIND)
        self.check_cycles()
        for tile, parts in enumerate(self.expected):
            when = [cycle for cycle, _payload in self.answered[tile].received]
            got = np.array([payload for _cycle, payload in self.answered[tile].received], object)
            self.bench.compare(f"tile {tile}", np.array(parts, object), got, cycles=when)
        return cycles

    async def run(self, reads: Sequence[Sequence[Read]]) -> int:
        """Reset, queue requests, and compare all; return the cycles to the last part."""
        await self.bench.reset()
        self.offer(reads)
        return await self.finish()

    def items(self, count: int) -> list[int]:
        """Return random items."""
        return self.rng.integers(0, 1 << self.p.request_bits, count, dtype=np.uint64).tolist()

    def reads(self, amounts: Sequence[int]) -> list[Read]:
        """Return reads of random items."""
        return list(zip(self.items(len(amounts)), amounts, strict=True))

    def random_reads(self, least: int = 4) -> list[Read]:
        """Return reads of random amounts, often those at which a further part begins."""
        p = self.p
        count = max(least, (300 if four_states() else 2000) // (p.parts * p.tiles))
        amounts = []
        for _ in range(count):
            before = int(self.rng.integers(p.parts)) * p.step
            within = [1, p.step, int(self.rng.integers(p.step)) + 1]
            amounts.append(before + int(self.rng.choice(within)))
        return self.reads(amounts)


def full_rate(p: SharedReadsParameters, least: int) -> bool:
    """Return whether room for answers of at least `least` parts covers the memory's latency.

    The room of a request of one part is free five cycles after the request.
    """
    return (p.tiles * p.waiting - 1) * least >= 2 * KEPT


@cocotb.test()
async def contexts(dut: Any) -> None:
    """All tiles read contexts that grow to the largest one, one part per cycle."""
    sharing = Sharing(dut, "contexts")
    p = sharing.p
    count = max(3, 1500 // (p.parts * p.tiles))
    amounts = [-(-p.most * number // count) for number in range(1, count + 1)]
    cycles = await sharing.run([sharing.reads(amounts) for _ in sharing.tiles])
    parts = sum(map(len, sharing.expected))
    if full_rate(p, -(-amounts[0] // p.step)):
        sharing.bench.compare("cycles", np.array([parts + 2 * KEPT]), np.array([cycles]))
    tensors = f"{count} contexts of each of {p.tiles} tiles"
    sharing.bench.record(cycles=cycles, ideal_cycles=parts, tensors=tensors)


@cocotb.test()
async def turns(dut: Any) -> None:
    """All tiles always request one part: requests are round-robin, one in each cycle."""
    sharing = Sharing(dut, "turns")
    p, count = sharing.p, 20
    cycles = await sharing.run([sharing.reads([1] * count) for _ in sharing.tiles])
    order = np.array([tile for _item, tile in sharing.sent])
    sharing.bench.compare("turns", np.tile(sharing.tiles, count), order)
    if full_rate(p, 1):
        wanted = np.array([p.tiles * count + 2 * KEPT])
        sharing.bench.compare("cycles", wanted, np.array([cycles]))


@cocotb.test()
async def amounts(dut: Any) -> None:
    """Run every amount; with large parameters those of first and last parts, and powers of two."""
    sharing = Sharing(dut, "amounts")
    p = sharing.p
    near = {1 << bit for bit in range(p.most.bit_length())}
    near |= {1, 2, p.step, p.step + 1, 2 * p.step, p.most - p.step, p.most - 1, p.most}
    chosen = range(1, p.most + 1) if p.most <= 64 else sorted(near)
    legal = [amount for amount in chosen if 1 <= amount <= p.most]
    orders = [sharing.rng.permutation(legal).tolist() for _ in sharing.tiles]
    await sharing.run([sharing.reads(order) for order in orders])


@cocotb.test()
async def some_ask(dut: Any) -> None:
    """Each tile has its own patterns: the arbiter passes over tiles without a request."""
    names = list(PAUSES)
    for number in range(1 if four_states() else 4):
        sharing = Sharing(dut, f"some {number}")
        for tile in sharing.tiles:
            sharing.asked[tile].pauses = sharing.bench.pauses(names[(tile + number) % 4])
            sharing.answered[tile].pauses = sharing.bench.pauses(names[tile * number % 4])
        await sharing.run([sharing.random_reads() for _ in sharing.tiles])


@cocotb.test()
async def one_takes_nothing(dut: Any) -> None:
    """Let a tile accept nothing: it has `waiting` requests in flight, and stalls no other tile."""
    sharing = Sharing(dut, "takes nothing")
    p = sharing.p
    for silent in sharing.tiles:
        await sharing.bench.reset()
        sharing.answered[silent].pauses = repeat(True)
        for tile in sharing.tiles:
            # Its memory is filled with the largest answers.
            largest = sharing.reads([p.most] * (p.waiting + 2))
            sharing.ask(tile, largest if tile == silent else sharing.random_reads(2 * p.waiting))
        await sharing.bench.run(until=lambda: sharing.lacking == 1 and sharing.fetched.idle)
        await sharing.bench.step(BEHIND)
        got = [sharing.asked[silent].taken, len(sharing.answered[silent].received)]
        sharing.bench.compare("of the silent tile", np.array([p.waiting, 0]), np.array(got))
        sharing.answered[silent].pauses = repeat(False)
        await sharing.finish()


@cocotb.test()
async def all_wait(dut: Any) -> None:
    """Stall the memory until all room is reserved, and the tiles until all memories are full."""
    sharing = Sharing(dut, "all wait")
    p = sharing.p
    await sharing.bench.reset()
    streams = [sharing.fetched, *sharing.answered]
    for one in streams:
        one.pauses = repeat(True)
    for tile in sharing.tiles:
        sharing.ask(tile, sharing.reads([p.most] * (2 * p.waiting + 1)))
    await sharing.bench.wait(sharing.bench.cycle + p.tiles * p.waiting + BEHIND)
    taken = np.array([source.taken for source in sharing.asked])
    sharing.bench.compare("requests", np.full(p.tiles, p.waiting), taken)
    sharing.fetched.pauses = repeat(False)
    await sharing.bench.run(until=lambda: sharing.fetched.idle)
    await sharing.bench.step(BEHIND)
    full = np.array([p.tiles * p.waiting * p.parts])
    sharing.bench.compare("parts", full, np.array([sharing.fetched.taken]))
    for sink in sharing.answered:
        sink.pauses = repeat(False)
    await sharing.finish()


stalls = stall_test(Sharing, lambda sharing: [sharing.random_reads() for _ in sharing.tiles])
resets = reset_test(
    partial(Sharing, memory="random"),
    lambda sharing: [sharing.random_reads() for _ in sharing.tiles],
    longest=79,
    times=lambda _sharing: 3 if four_states() else 12,
    pauses=("random", "random"),
)
