"""The replay buffer outputs a vector repeatedly until it is released."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from hdl.memory.replay_buffer import ReplayBuffer
from testbenches.stream_trial import Cycle, check_streams, run_streams


def releasing(unit: ReplayBuffer, last: list[bool]) -> Cycle:
    """Return a hook that releases a vector at the marked items."""

    def release(ctx: Any, received: Mapping[str, list[int]]) -> None:
        taken = len(received["sink"])
        ctx.set(unit.release, taken < len(last) and last[taken])

    return release


def test_rounds_follow_each_other() -> None:
    rng = random.Random(1)
    vectors = [[rng.randrange(256) for _ in range(rng.randint(1, 6))] for _ in range(20)]
    wanted = [vector * rng.randint(1, 4) for vector in vectors]
    last = [place == len(items) - 1 for items in wanted for place in range(len(items))]
    unit = ReplayBuffer(shape=8, depth=6)
    source = [
        item | (place == len(vector) - 1) << 8
        for vector in vectors
        for place, item in enumerate(vector)
    ]
    expected = [item for items in wanted for item in items]
    check_streams(unit, {"source": source}, {"sink": expected}, cycle=releasing(unit, last))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("follows", [False, True])
def test_parts_arrive_in_any_order(seed: int, *, follows: bool) -> None:
    """Each part is stored at its place, and the first round waits for missing parts."""
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
    release = releasing(unit, last)
    check_streams(unit, {"source": source}, {"sink": expected}, seeds=[seed], cycle=release)


@pytest.mark.parametrize("follows", [False, True])
def test_first_round_follows(*, follows: bool) -> None:
    """Items in order are output before the vector is complete, only if `follows`."""
    unit = ReplayBuffer(shape=8, depth=4, follows=follows)
    offered = []

    def watch(ctx: Any) -> None:
        offered.append(ctx.get(unit.sink.valid))
        ctx.set(unit.release, 1)

    run_streams(
        unit, {"source": [1, 2, 3, 4 | 1 << 8]}, {"sink": 1}, seed=0, pauses="none", cycle=watch
    )
    assert offered.index(1) == (2 if follows else 5)


def test_full_rate_across_rounds() -> None:
    """From the first item of ten rounds to the last, every cycle transfers one."""
    unit = ReplayBuffer(shape=8, depth=4)
    gaps = []

    def watch(ctx: Any) -> None:
        gaps.append(not ctx.get(unit.sink.valid))

    source = [1, 2, 3, 4 | 1 << 8]
    run_streams(unit, {"source": source}, {"sink": 40}, seed=0, pauses="none", cycle=watch)
    assert gaps.index(False) == 2
    assert not any(gaps[2:])


def test_rejects_an_illegal_depth() -> None:
    with pytest.raises(ValueError, match="depth must be an integer from 2 to 1048576, not 1"):
        ReplayBuffer(shape=8, depth=1)
