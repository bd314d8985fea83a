"""Testbench of the refresh controllers: SmolLM2's scores, continuous traffic, resets."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import Timer

from golden.kelle.edram.refresh_controller import RefreshModel, uniform_operations
from golden.kelle.eviction.aerp import AerpParameters, replay
from golden.kelle.eviction.head_scores import HeadScores
from golden.llm import open_trace
from hdl.kelle.edram.kv_edram import HALVES
from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import Bench, catalog_parameters
from testbenches.kelle.edram.paper_intervals import PAPER, paper_intervals
from testbenches.packing import from_integers, pack, to_integer, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

Changes = list[tuple[int, int, int]]
"""Changes of one tick: entry, score, and whether it is valid."""

LAYER = 14
CACHED = 96
"""Tokens per head in the trace of scores."""
TICK_TIME = Fraction(36, 100)
"""Duration of a tick in ms, the paper's shortest interval."""
UNIFORM = Fraction(45, 1000)
"""Interval in ms that refreshes every cell before its retention time ends."""
ROUND = 60
"""Ticks after which all four of the paper's intervals have expired together."""


def scaled(p: RefreshParameters) -> RefreshSettings:
    """Return the paper's intervals with the shortest tick in which scores can change."""
    updates = 2 * p.entries + 6
    room = (1 << p.tick_bits) - 1 - p.sweep_cycles
    timeout = min(40, max(room - updates, 0))
    tick = p.sweep_cycles + min(timeout + updates, room)
    return paper_intervals(p, tick, timeout, PAPER if p.interval_bits >= 5 else (2, 2, 3))


def room(p: RefreshParameters) -> int:
    """Return the number of changes per tick, after a sweep."""
    settings = scaled(p)
    return settings.tick_cycles - settings.timeout - p.sweep_cycles - 2


def small(run: Run) -> bool:
    """Return whether a sweep is short."""
    return run.parameters.entries <= 1024


def fits_a_tick(run: Run) -> bool:
    """Return whether the paper's intervals are legal and a tick has time to change all scores."""
    return run.parameters.interval_bits >= 5 and room(run.parameters) >= run.parameters.entries


def prepare(p: RefreshParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=640, layers=(LAYER,))


def real_scores(p: RefreshParameters) -> Iterator[Changes]:
    """Yield for each step the scores of all cached tokens of a layer of SmolLM2, as entries."""
    trace = open_trace(text="prose", tokens=640, layers=(LAYER,))
    group = trace.heads // trace.kv_heads
    evictor = SystolicEvictorParameters(rows=32, slots=CACHED, index_width=7)
    policy = AerpParameters(budget=CACHED, window=CACHED // 2)
    eviction = EvictionParameters(evictor=evictor, window=policy.window, score_bits=p.score_bits)
    states = [HeadScores(eviction) for _ in range(trace.kv_heads)]
    heads = []
    for kv_head in range(trace.kv_heads):
        own = range(kv_head * group, (kv_head + 1) * group)
        scores = np.stack([trace.attention_trace(LAYER, head).scores for head in own])
        steps = replay(scores, policy, first=80, steps=80, source=ScoreSource.RAW, evictor=evictor)
        heads.append(steps)
    for steps_of_heads in zip(*heads, strict=True):
        updates = []
        for kv_head, step in enumerate(steps_of_heads):
            exported = states[kv_head].coarse(step.importance)
            states[kv_head].learn(step.importance[step.positions >= 0])
            for slot in range(CACHED):
                valid = int(step.positions[slot] >= 0)
                entry = kv_head * CACHED + slot
                if entry < p.entries:
                    updates.append((entry, int(exported[slot]), valid))
        yield updates


class Grants:
    """Grant refreshes if there is no traffic or the request is urgent; record addresses.

    In every cycle the unit's counters must equal the granted words, and no request may be urgent
    too early.
    """

    def __init__(
        self, bench: Bench, half: str, busy: Iterator[bool], may_urge: Callable[[], bool]
    ) -> None:
        self.bench, self.busy, self.may_urge = bench, busy, may_urge
        self.p: RefreshParameters = catalog_parameters()
        self.shift = HALVES.index(half) * self.p.group_counts.size
        dut = bench.dut
        self.counts = dut.counts
        self.valid, self.ready = getattr(dut, f"{half}_valid"), getattr(dut, f"{half}_ready")
        self.payload = getattr(dut, f"{half}_payload")
        self.urgent = getattr(dut, f"{half}_urgent")
        self.addresses: list[int] = []
        self.last = 0
        self.offer: int | None = None
        self.counted: int | None = 0
        self.granting = False
        self.clear()

    def clear(self) -> None:
        """Discard all recorded values."""
        self.ready.value = 0
        self.addresses = []
        self.last = 0
        self.offer = None
        self.counted = 0

    def drive(self) -> None:
        """Grant or refuse a refresh in this cycle."""
        busy = next(self.busy)
        urgent = bool(int(self.urgent.value))
        assert not urgent or self.may_urge(), f"cycle {self.bench.cycle}: urgent too early"
        self.granting = urgent or not busy
        self.ready.value = int(self.granting)

    def sample(self) -> None:
        """Record the granted address; an offer must remain unchanged until it is granted."""
        valid = int(self.valid.value)
        if self.offer is not None:
            assert valid, f"cycle {self.bench.cycle}: an address was taken back"
            assert int(self.payload.value) == self.offer, "an address was changed"
        self.offer = int(self.payload.value) if valid and not self.granting else None
        taken = bool(valid) and self.granting
        if taken:
            self.addresses.append(int(self.payload.value))
            self.last = self.bench.cycle
        self.follow(taken)

    def follow(self, taken: bool) -> None:
        """Compare the counters of the two groups with the number of granted words."""
        bits = self.p.count_bits
        groups = int(self.counts.value) >> self.shift
        counted = (groups + (groups >> bits)) % (1 << bits)
        expected = counted if self.counted is None else self.counted
        assert counted == expected, f"cycle {self.bench.cycle}: {counted} words, not {expected}"
        self.counted = (counted + taken) % (1 << bits)


class Refresh:
    """A bench with scores, settings and grants.

    The pair of stall patterns is that of the scores, and that of the grants: a request for a
    refresh is granted in the cycles in which other traffic pauses, or ``"endless"`` traffic does
    not. Scores do not stall: a tick has time for a known number of changes.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        traffic: str = "none",
        *,
        intervals: Mapping[str, int] | None = None,
    ) -> None:
        self.p: RefreshParameters = catalog_parameters()
        self.settings = replace(scaled(self.p), **(intervals or {}))
        self.room = room(self.p)
        # Refreshes are no stream transfers; scores may not change for a few ticks.
        self.bench = Bench(dut, f"{salt} {traffic}", timeout=4 * self.settings.tick_cycles)
        self.model = RefreshModel(self.p, self.settings)
        self.source = self.bench.source("scores", source)
        busy = (iter(lambda: True, False) if traffic == "endless" else self.bench.pauses(traffic),)
        self.begun = 0
        self.grants = [
            self.bench.add(Grants(self.bench, half, busy[0], self.may_urge)) for half in HALVES
        ]
        settings = {
            name: {group: np.array(value) for group, value in item.items()}
            if isinstance(item, dict)
            else np.array(item)
            for name, item in self.settings.payload.items()
        }
        dut.settings.value = to_integer(pack(self.p.settings_layout, settings))

    def may_urge(self) -> bool:
        """Return whether the timeout of a sweep has expired in this cycle."""
        since = self.bench.cycle - self.begun
        return since >= 0 and since % self.settings.tick_cycles >= self.settings.timeout

    def begin(self) -> None:
        """Begin after a reset: the first tick begins when the unit has cleared all entries."""
        self.model = RefreshModel(self.p, self.settings)
        self.begun = self.bench.cycle + self.p.entries

    async def start(self) -> None:
        """Reset and wait until the first tick begins."""
        await self.bench.reset()
        self.begin()
        await self.bench.step()
        await self.bench.run(until=lambda: bool(int(self.bench.dut.scores_ready.value)))
        begun = np.array([self.bench.cycle])
        self.bench.compare("first cycle of a tick", np.array([self.begun]), begun)

    def offer(self, work: list[Changes]) -> None:
        """Offer the changes of all ticks at once, as soon as the unit has cleared all entries."""
        self.begin()
        for updates in work:
            self.send(updates)

    async def run(self, work: list[Changes]) -> None:
        """Reset, change scores in each tick, and compare every address of every sweep."""
        await self.start()
        for updates in work:
            await self.tick(updates)

    async def until(self, cycle: int) -> None:
        """Simulate until a cycle of the current tick."""
        await self.bench.wait(self.begun + cycle)

    def send(self, updates: Changes) -> None:
        """Offer changes, and apply them to the model."""
        entry, score, valid = np.array(updates, np.int64).reshape(-1, 3).T
        bits = pack(self.p.score_layout, {"entry": entry, "score": score, "valid": valid})
        self.source.send(to_integers(bits))
        for item in updates:
            self.model.change(item[0], item[1], bool(item[2]))

    async def tick(self, updates: Changes) -> None:
        """Change scores between sweeps, simulate a tick and its sweep, and compare.

        Only as many changes are applied as the tick has time for.
        """
        bench, tick = self.bench, self.settings.tick_cycles
        self.send(updates[: self.room])
        await self.until(tick - 2)
        assert self.source.idle
        await self.until(tick)
        self.begun += tick
        for grants in self.grants:
            grants.addresses.clear()
        expected = self.model.tick()
        await self.until(self.settings.timeout + self.p.sweep_cycles)
        for half, grants, addresses in zip(HALVES, self.grants, expected, strict=True):
            bench.compare(f"{half} addresses", addresses, np.array(grants.addresses, np.int64))
        self.compare_counts()

    def compare_counts(self) -> None:
        """Compare the counters."""
        bits = from_integers([int(self.bench.dut.counts.value)], self.p.counts_layout.size)
        got = unpack(self.p.counts_layout, bits)[0]
        self.bench.compare("counts", self.model.counts % (1 << self.p.count_bits), got)


@cocotb.test()
async def random_scores(dut: Any) -> None:
    """Sweep while entries become valid and invalid and change their group between sweeps."""
    refresh = Refresh(dut, "random scores", traffic="random")
    p, rng = refresh.p, refresh.bench.numpy_rng
    await refresh.start()
    for _ in range(4 if p.entries > 1024 else 40):
        count = int(rng.integers(1, min(p.entries, 256)))
        entries = rng.integers(0, p.entries, count)
        values = [0, (1 << p.score_bits) - 1, int(rng.integers(1 << p.score_bits))]
        scores = rng.choice(values, count)
        updates = zip(entries, scores, rng.random(count) < 0.8, strict=True)
        await refresh.tick([(int(e), int(s), int(v)) for e, s, v in updates])


@cocotb.test()
@only_if(small, "sweeps of thousands of entries are long")
async def any_intervals(dut: Any) -> None:
    """Sweep with random intervals; the shortest one may be more than one tick."""
    most = min((1 << catalog_parameters().interval_bits) - 1, 5)
    for number in range(6):
        salt = f"any intervals {number}"
        rng = Bench(dut, salt).numpy_rng
        intervals: dict[str, int] = {}
        for half in HALVES:
            hst, lst = sorted(rng.integers(1, most, 2, endpoint=True).tolist())
            intervals |= {f"{half}_hst": hst, f"{half}_lst": lst}
        refresh = Refresh(dut, salt, traffic="random", intervals=intervals)
        p = refresh.p
        await refresh.start()
        for _ in range(12):
            entries = rng.permutation(p.entries)[: min(p.entries, 256)].tolist()
            scores = rng.integers(0, 1 << p.score_bits, len(entries)).tolist()
            await refresh.tick([(e, s, 1) for e, s in zip(entries, scores, strict=True)])


@cocotb.test()
@only_if(fits_a_tick, "intervals of fewer bits, or scores that do not fit a tick")
async def operations_against_uniform(dut: Any) -> None:
    """Count refreshed words over a round of all intervals, and compare with a 45 us sweep."""
    refresh = Refresh(dut, "operations against uniform")
    p, bench = refresh.p, refresh.bench
    await refresh.start()
    rank = bench.numpy_rng.permutation(p.entries)
    updates = [(e, int(rank[e] * (1 << p.score_bits) // p.entries), 1) for e in range(p.entries)]
    refresh.send(updates)
    await bench.run(until=lambda: refresh.source.idle)
    for half in HALVES:
        getattr(dut, f"{half}_ready").value = 1
    # No input changes for many cycles, so the simulator generates the clock.
    tick = refresh.settings.tick_cycles
    unattended = (ROUND - 1) * tick - (bench.cycle - refresh.begun)
    clock = Clock(dut.clk, 2, unit="ns")
    clock.start(start_high=False)
    await Timer(2 * unattended, unit="ns")
    clock.stop()
    bench.cycle += unattended
    refresh.begun += (ROUND - 1) * tick
    for grants in refresh.grants:
        grants.counted = None
    for _ in range(ROUND - 1):
        refresh.model.tick()
    await refresh.tick([])
    words = int(refresh.model.counts.sum())
    uniform = 2 * uniform_operations(ROUND, TICK_TIME, UNIFORM, p.entries * p.words)
    # In the last tick of the round all intervals expire: the lower bound is one word per cycle.
    bench.record(
        cycles=refresh.grants[0].last - refresh.begun + 1,
        ideal_cycles=p.entries * p.words,
        refreshed_words=words,
        fewer_than_uniform_45us=round(float(uniform / words), 3),
        tensors=f"scores of SmolLM2's layer {LAYER}",
    )


def changes(refresh: Refresh) -> list[Changes]:
    """Return the changes of SmolLM2's scores from tick to tick."""
    return list(islice(real_scores(refresh.p), 5 if refresh.p.entries > 1024 else 25))


def first_and_last(refresh: Refresh) -> list[Changes]:
    """Return changes of two entries only, so that any other entry is from before a reset."""
    p = refresh.p
    return [[(0, 1, 1), (p.entries - 1, 2 % (1 << p.score_bits), 1)]] * 3


short_sweeps = only_if(small, "sweeps of thousands of entries are long")
sweeps = stall_test(Refresh, changes, pairs=[("none", "random")], name="sweeps")
stalls = stall_test(
    Refresh,
    changes,
    pairs=[("none", traffic) for traffic in ("none", "bursty", "adversarial", "endless")],
    condition=short_sweeps,
)
resets = reset_test(
    Refresh,
    first_and_last,
    begun=lambda refresh: [
        [(e, e % (1 << refresh.p.score_bits), 1) for e in range(refresh.p.entries)]
    ],
    longest=lambda refresh: refresh.p.entries + 3 * refresh.settings.tick_cycles,
    times=2,
    rounds=4,
    pauses=("none", "random"),
    condition=short_sweeps,
)
