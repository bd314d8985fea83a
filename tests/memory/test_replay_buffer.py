"""The replay buffer gives a vector's items again and again, and forgets it when told."""

import random
from typing import Any

import pytest

from hdl.memory.replay_buffer import ReplayBuffer
from testbenches.stream_trial import run_streams


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("busy", [1.0, 0.5])
def test_rounds_follow_each_other(seed: int, busy: float) -> None:
    rng = random.Random(seed)
    vectors = [[rng.randrange(256) for _ in range(rng.randint(1, 6))] for _ in range(20)]
    rounds = [rng.randint(1, 4) for _ in vectors]
    wanted = [vector * times for vector, times in zip(vectors, rounds, strict=True)]
    # The reader knows which of all items it is at, and so which is the last of a vector's rounds.
    last = [place == len(items) - 1 for items in wanted for place in range(len(items))]
    unit = ReplayBuffer(shape=8, depth=6)
    taken = 0

    def release(ctx: Any) -> None:
        nonlocal taken
        ctx.set(unit.release, last[taken] if taken < len(last) else 0)
        taken += ctx.get(unit.sink.valid) and ctx.get(unit.sink.ready)

    source = [
        item | (place == len(vector) - 1) << 8
        for vector in vectors
        for place, item in enumerate(vector)
    ]
    expected = [item for items in wanted for item in items]
    got = run_streams(
        unit, {"source": source}, {"sink": len(expected)}, seed=seed, busy=busy, cycle=release
    )
    assert got["sink"] == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("follows", [False, True])
def test_parts_come_in_any_order(seed: int, *, follows: bool) -> None:
    """Each part goes to its place, and the first round waits for what is not there."""
    rng = random.Random(seed)
    unit = ReplayBuffer(shape=8, depth=6, parts=2, placed=True, follows=follows)
    source: list[int] = []
    expected: list[int] = []
    last: list[bool] = []
    for _ in range(20):
        vector = [rng.randrange(256) for _ in range(rng.randint(1, 6))]
        parts = [item >> 4 * half & 15 for item in vector for half in (0, 1)]
        places = list(range(len(parts)))
        if rng.randrange(3):
            rng.shuffle(places)
        source += [
            parts[place] | place << 4 | (number == len(parts) - 1) << 8
            for number, place in enumerate(places)
        ]
        rounds = rng.randint(1, 4)
        expected += vector * rounds
        last += [place == rounds * len(vector) - 1 for place in range(rounds * len(vector))]
    taken = 0

    def release(ctx: Any) -> None:
        nonlocal taken
        ctx.set(unit.release, last[taken] if taken < len(last) else 0)
        taken += ctx.get(unit.sink.valid) and ctx.get(unit.sink.ready)

    got = run_streams(
        unit, {"source": source}, {"sink": len(expected)}, seed=seed, busy=0.5, cycle=release
    )
    assert got["sink"] == expected


@pytest.mark.parametrize("follows", [False, True])
def test_first_round_follows(*, follows: bool) -> None:
    """Items that come in order are offered before the last one is there, unless told to wait."""
    unit = ReplayBuffer(shape=8, depth=4, follows=follows)
    offered = []

    def watch(ctx: Any) -> None:
        offered.append(ctx.get(unit.sink.valid))
        ctx.set(unit.release, 1)

    run_streams(unit, {"source": [1, 2, 3, 4 | 1 << 8]}, {"sink": 1}, seed=0, busy=1.0, cycle=watch)
    assert offered.index(1) == (2 if follows else 5)


def test_rounds_cost_no_cycle() -> None:
    """Between the first item and the last of ten rounds, each cycle gives one."""
    unit = ReplayBuffer(shape=8, depth=4)
    gaps = []

    def watch(ctx: Any) -> None:
        gaps.append(not ctx.get(unit.sink.valid))

    source = [1, 2, 3, 4 | 1 << 8]
    run_streams(unit, {"source": source}, {"sink": 40}, seed=0, busy=1.0, cycle=watch)
    assert gaps.index(False) == 2
    assert not any(gaps[2:])


def test_depth_is_worded() -> None:
    with pytest.raises(ValueError, match="depth must be an integer from 2 to 1048576, not 1"):
        ReplayBuffer(shape=8, depth=1)
