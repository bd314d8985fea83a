"""Rows of a group's active positions: against Python's sets, with any order of stalls."""

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.lad.control.position_prefetcher import PositionPrefetcher
from hdl.lad.parameters import LadTileParameters

GROUPS: LadTileParameters = entry_named("lad_tile").parameters("tiny_groups")
TOKENS, FIRST = 8, 24
PATIENCE = 3000
"""Cycles without an answer after which the unit is considered deadlocked."""


@dataclass(frozen=True)
class Step:
    """A head's step: its newest position, and its active positions."""

    head: int
    newest: int
    active: tuple[int, ...]


def random_steps(p: LadTileParameters, rng: np.random.Generator) -> list[Step]:
    """Return interleaved steps of all groups: few active positions, half of them, or all."""
    steps = []
    for newest in range(FIRST, FIRST + TOKENS):
        for head in range(p.stored_heads):
            share = rng.choice([0.1, 0.5, 0.8, 1.0])
            active = np.nonzero(rng.random(newest) < share)[0].tolist()
            steps.append(Step(head, newest, (*active, newest)))
    return steps


def counted(p: LadTileParameters, steps: list[Step]) -> Counter[str]:
    """Return the expected counts, from sets: prefetched, hits, misses, later heads, no room."""
    counts, before = Counter[str](), dict[int, set[int]]()
    for token in range(0, len(steps), p.shared):
        group = steps[token : token + p.shared]
        number = group[0].head
        listed, kept = before.get(number, set()), set[int]()
        counts["ahead"] += len(listed)
        for place, step in enumerate(group):
            active = set(step.active)
            counts["hits"] += len(active & listed)
            counts["shared"] += len(active & listed) if place else 0
            counts["misses"] += len(active - listed)
            for position in sorted((listed | active) - kept):
                if len(kept) < p.kept:
                    kept.add(position)
                else:
                    counts["crowded"] += place < p.shared - 1
            listed = kept
        before[number] = set().union(*(step.active for step in group))
    return counts


class Surroundings:
    """The tile around the unit: steps that begin and end, and a memory that answers in order."""

    def __init__(self, p: LadTileParameters, steps: list[Step], rng: np.random.Generator) -> None:
        self.p, self.steps, self.rng = p, steps, rng
        self.unit = PositionPrefetcher(parameters=p)
        self.asked, self.fetched = deque[Any](), deque[Any]()
        self.ended = deque[Step]()
        self.away: set[int] = set()
        self.requests = self.given = 0
        self.counts = (0, 0)

    def row(self, head: int, position: int) -> dict[str, list[int]]:
        """Return a group's key and value at a position."""
        size, word = self.p.vector.head_size, head // self.p.shared << 8 | position
        return {"key": [word] * size, "value": [word | 0x8000] * size}

    async def pause(self, context: Any) -> None:
        """Wait a random number of cycles."""
        while self.rng.random() < 0.3:
            await context.tick()

    async def send(self, context: Any, port: Any, payload: Any) -> None:
        """Transfer a payload."""
        await self.pause(context)
        context.set(port.valid, 1)
        context.set(port.payload, payload)
        await context.tick().until(port.ready)
        context.set(port.valid, 0)

    async def name(self, context: Any) -> None:
        """Announce the heads of the next steps."""
        for step in self.steps:
            await self.send(context, self.unit.heads, {"head": step.head})

    async def begin(self, context: Any) -> None:
        """Begin a step when its head's previous step has ended."""
        for step in self.steps:
            while step.head in self.away or not context.get(self.unit.may_begin):
                await context.tick()
            self.away.add(step.head)
            context.set(self.unit.begins, 1)
            await context.tick()
            context.set(self.unit.begins, 0)
            self.asked.append(step)

    async def ask(self, context: Any) -> None:
        """Request the positions of each step that has begun."""
        for _ in self.steps:
            while not self.asked:
                await context.tick()
            step = self.asked.popleft()
            for position in step.active:
                last = int(position == step.newest)
                payload = {"head": step.head, "position": position, "last": last}
                await self.send(context, self.unit.asked, payload)

    async def remember(self, context: Any) -> None:
        """Accept requests."""
        port = self.unit.requests
        while True:
            context.set(port.ready, int(self.rng.random() < 0.6))
            *_edge, valid, ready, place = await context.tick().sample(
                port.valid, port.ready, port.payload
            )
            if valid and ready:
                self.requests += 1
                self.fetched.append(self.row(int(place.head), int(place.position)))

    async def answer(self, context: Any) -> None:
        """Answer them in order."""
        while True:
            while not self.fetched:
                await context.tick()
            await self.send(context, self.unit.fetched, self.fetched.popleft())

    async def take(self, context: Any) -> None:
        """Compare the rows of each step; then end it."""
        port, waited = self.unit.answered, 0
        for step in self.steps:
            left = deque(step.active)
            while left:
                context.set(port.ready, int(self.rng.random() < 0.7))
                *_edge, valid, ready, row = await context.tick().sample(
                    port.valid, port.ready, port.payload
                )
                waited += 1
                assert waited < PATIENCE
                if valid and ready:
                    waited = 0
                    expected = self.row(step.head, left.popleft())
                    assert [int(one) for one in row.key] == expected["key"]
                    assert [int(one) for one in row.value] == expected["value"]
            context.set(port.ready, 0)
            self.ended.append(step)
        await context.tick().repeat(50)
        self.counts = context.get(self.unit.hits), context.get(self.unit.misses)

    async def record(self, context: Any) -> None:
        """Record a step's groups, which ends it."""
        record, lanes = self.unit.record, self.p.apid.lanes
        while True:
            while not self.ended:
                await context.tick()
            step = self.ended.popleft()
            groups = step.newest // lanes + 1
            for group in range(groups):
                await self.pause(context)
                active = sum(1 << place % lanes for place in step.active if place // lanes == group)
                context.set(record.head, step.head)
                context.set(record.group, group)
                context.set(record.active, active)
                context.set(record.last, int(group == groups - 1))
                context.set(record.enable, 1)
                await context.tick()
                context.set(record.enable, 0)
            await self.pause(context)
            context.set(self.unit.freed, 1)
            context.set(self.unit.freed_head, step.head)
            self.away.remove(step.head)
            await context.tick()
            context.set(self.unit.freed, 0)


@pytest.mark.parametrize(
    ("shared", "kept", "prefetched"), [(3, 7, 5), (3, 40, 40), (2, 1, 9), (6, 20, 3), (1, 0, 5)]
)
def test_rows_are_those_of_the_sets(shared: int, kept: int, prefetched: int) -> None:
    p = replace(GROUPS, shared=shared, kept=kept, prefetched=prefetched)
    rng = np.random.default_rng(shared)
    around = Surroundings(p, random_steps(p, rng), rng)
    simulator = Simulator(around.unit)
    simulator.add_clock(1e-6)
    for process in (around.name, around.begin, around.ask, around.take):
        simulator.add_testbench(process)
    for process in (around.remember, around.answer, around.record):
        simulator.add_testbench(process, background=True)
    simulator.run()
    counts = counted(p, around.steps)
    assert around.counts == (counts["hits"], counts["misses"])
    assert around.requests == counts["ahead"] + counts["misses"]
    # The cases that the test is meant for have occurred.
    assert (counts["shared"] > 0) == (shared > 1)
    assert (counts["crowded"] > 0) == (shared > 1 and kept < FIRST)
