"""Test the slot table under every order of loads, searches, victims and steps."""

import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.veda.control.slot_table import SEARCHES_IN_FLIGHT, SlotTable
from hdl.veda.parameters import VedaParameters
from testbenches.packing import from_integers, unpack

P: VedaParameters = entry_named("veda").parameters("tiny")
KINDS = ("step", "evict", "load", "load_evict", "trim")


@dataclass(frozen=True)
class Request:
    """An instruction, and the victims that its search will find."""

    layer: int
    load: bool = False
    length: int = 0
    last_token: int = 0
    evictions: int = 0
    victims: tuple[tuple[int, bool], ...] = ()


def request(rng: random.Random, kind: str, layer: int) -> Request:
    """Return a random request of a kind."""
    load = kind.startswith("load")
    evictions = {"evict": 1, "load_evict": 1, "trim": 2}.get(kind, 0)
    victims = tuple((rng.randrange(4), rng.random() < 0.9) for _ in range(evictions))
    return Request(layer, load, rng.randrange(4) if load else 0, 0, evictions, victims)


def expected(requests: list[Request]) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Return the expected tasks (layer, slot, length) and evictions (layer, slot).

    The layer's next token takes a victim's slot, unless a new text begins before the victim is
    known.
    """
    lengths: dict[int, int] = {}
    free: dict[int, int | None] = {}
    tasks, evictions = [], []
    for one in requests:
        if one.load:
            lengths[one.layer], free[one.layer] = one.length, None
        slot = free[one.layer]
        if slot is None:
            slot = min(lengths[one.layer], P.slots - 1)
            lengths[one.layer] = slot + 1
        tasks.append((one.layer, slot, lengths[one.layer]))
        found = [slot for slot, is_one in one.victims if is_one]
        evictions += [(one.layer, slot) for slot in found]
        free[one.layer] = found[0] if one.evictions == 1 and found else None
    return tasks, evictions


def latest(requests: list[Request]) -> list[int]:
    """Return for each search the maximum number of tasks that do not wait for its victims."""
    searches = [number for number, one in enumerate(requests) if one.evictions]
    limits = []
    for turn, number in enumerate(searches):
        limit = len(requests)
        behind = requests[number + 1 :]
        for place, other in enumerate(behind, number + 1):
            if other.layer == requests[number].layer:
                if not other.load and requests[number].evictions == 1:
                    limit = place
                break
        if turn + SEARCHES_IN_FLIGHT < len(searches):
            limit = min(limit, searches[turn + SEARCHES_IN_FLIGHT])
        limits.append(limit)
    # Victims arrive in the order of their searches.
    for turn in reversed(range(len(limits) - 1)):
        limits[turn] = min(limits[turn], limits[turn + 1])
    return limits


def run(
    requests: list[Request], after: list[int], gap: int = 0
) -> tuple[list[Any], list[Any], bool]:
    """Offer instructions, `gap` cycles apart, and a search's victims after `after` of all tasks.

    Returns the tasks, the evictions, and whether the error `trimmed` is set.
    """
    unit = SlotTable(parameters=P)
    tasks: list[tuple[int, ...]] = []
    evictions: list[tuple[int, int]] = []
    trimmed = False

    async def instruct(context: Any) -> None:
        port = unit.instructions
        for one in requests:
            for name in ("layer", "load", "length", "last_token", "evictions"):
                context.set(port.payload[name], getattr(one, name))
            context.set(port.valid, 1)
            await context.tick().until(port.ready)
            context.set(port.valid, 0)
            for _ in range(gap):
                await context.tick()

    async def name_victims(context: Any) -> None:
        port = unit.victims
        searches = [one for one in requests if one.evictions]
        for one, tasks_before in zip(searches, after, strict=True):
            while len(tasks) < tasks_before:
                await context.tick()
            for slot, found in one.victims:
                context.set(port.payload.slot, slot)
                context.set(port.payload.found, found)
                context.set(port.valid, 1)
                await context.tick().until(port.ready)
                context.set(port.valid, 0)

    async def collect(context: Any) -> None:
        nonlocal trimmed
        context.set(unit.tasks.ready, 1)
        context.set(unit.evictions.ready, 1)
        named = len(expected(requests)[1])
        for _cycle in range((gap + 20) * len(requests) + 100):
            sampled = await context.tick().sample(
                unit.tasks.valid, unit.tasks.payload, unit.evictions.valid, unit.evictions.payload
            )
            _, _, task_valid, task, eviction_valid, eviction = sampled
            if task_valid:
                tasks.append((task.layer, task.slot, task.length))
            if eviction_valid:
                evictions.append((eviction.layer, eviction.slot))
            trimmed = bool(context.get(unit.errors.trimmed))
            if len(tasks) == len(requests) and len(evictions) == named:
                return

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    for bench in (instruct, name_victims):
        simulator.add_testbench(bench, background=True)
    simulator.add_testbench(collect)
    simulator.run()
    return tasks, evictions, trimmed


@pytest.mark.parametrize(("late", "gap"), [(False, 0), (True, 0), (True, 4)])
def test_every_order_of_four_instructions_of_a_layer(late: bool, gap: int) -> None:
    """Each victim arrives as early as possible, or as late as possible: after later loads."""
    rng = random.Random(late)
    requests = []
    for kinds in itertools.product(KINDS, repeat=3):
        requests.append(request(rng, "load", 0))
        requests += [request(rng, kind, 0) for kind in kinds]
    searches = [number for number, one in enumerate(requests) if one.evictions]
    after = latest(requests) if late else [number + 1 for number in searches]
    tasks, evictions, _trimmed = run(requests, after, gap)
    assert (tasks, evictions) == expected(requests)


@pytest.mark.parametrize("seed", range(3))
def test_layers_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    requests = [request(rng, "load", layer) for layer in range(P.layers)]
    requests += [request(rng, rng.choice(KINDS), rng.randrange(P.layers)) for _ in range(150)]
    searches = [number for number, one in enumerate(requests) if one.evictions]
    after, least = [], 0
    for number, limit in zip(searches, latest(requests), strict=True):
        least = max(least, rng.randint(number + 1, max(limit, number + 1)))
        after.append(least)
    after = [min(*pair) for pair in zip(after, latest(requests), strict=True)]
    tasks, evictions, _trimmed = run(requests, after)
    assert (tasks, evictions) == expected(requests)


def test_new_text_ignores_victim_of_previous_text() -> None:
    """B's second token follows its first, although A's victim arrives in between."""
    requests = [
        Request(0, load=True, length=4, evictions=1, victims=((2, True),)),
        Request(0, load=True),
        Request(0),
    ]
    tasks, evictions, _trimmed = run(requests, [2], gap=8)
    assert tasks == [(0, 4, 5), (0, 0, 1), (0, 1, 2)]
    assert evictions == [(0, 2)]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"operation": 1, "position": P.context_length - 1}, None),
        ({"last_token": P.block}, "block"),
        ({"operation": 1, "position": P.context_length - 1, "last_token": 1}, "position"),
        ({"position": P.context_length - 1, "last_token": 1}, None),
    ],
)
def test_illegal_instructions_are_reported(fields: dict[str, int], error: str | None) -> None:
    """A block that is too long is truncated; positions matter only to whole layers."""
    unit = SlotTable(parameters=P)
    seen = {}

    async def bench(context: Any) -> None:
        for name, number in {"load": 1, **fields}.items():
            context.set(unit.instructions.payload[name], number)
        context.set(unit.instructions.valid, 1)
        context.set(unit.blocks.ready, 1)
        context.set(unit.tasks.ready, 1)
        (task,) = await context.tick().sample(unit.tasks.payload).until(unit.instructions.ready)
        seen["last_token"] = task.last_token
        await context.tick()
        packed = from_integers([context.get(unit.errors.as_value())], 3)
        seen["errors"] = unpack(P.instruction_errors_layout, packed)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    raised = [name for name, flag in seen["errors"].items() if np.any(flag)]
    assert raised == ([error] if error else [])
    assert seen["last_token"] == min(fields.get("last_token", 0), P.block - 1)


def test_a_trimmed_layer_must_be_loaded() -> None:
    trim = Request(0, load=True, length=4, evictions=2, victims=((1, True), (2, True)))
    for behind in (Request(0, load=True, length=3), Request(0)):
        tasks, evictions, trimmed = run([trim, behind], [1])
        assert (tasks, evictions) == expected([trim, behind])
        assert trimmed != behind.load
