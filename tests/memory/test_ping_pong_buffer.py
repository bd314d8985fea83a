"""The ping-pong buffer outputs blocks in order, replays them, and accepts the next one."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from hdl.memory.ping_pong_buffer import PingPongBuffer
from testbenches.stream_trial import check_streams, run_streams


def blocks_of(lengths: list[int]) -> list[list[int]]:
    rng = random.Random(len(lengths))
    blocks = [[rng.randrange(256) for _ in range(length)] for length in lengths]
    return [
        [word | (place == len(block) - 1) << 8 for place, word in enumerate(block)]
        for block in blocks
    ]


def test_blocks_pass_in_order() -> None:
    blocks = blocks_of([1, 6, 3, 1, 1, 2, 5, 6, 6, 4] * 3)
    words = [word for block in blocks for word in block]
    check_streams(PingPongBuffer(shape=8, depth=6), {"source": words}, {"sink": words})


def test_blocks_are_replayed() -> None:
    blocks = blocks_of([1, 6, 3, 1, 1, 2, 5, 6, 6, 4] * 2)
    rng = random.Random(1)
    rounds = [rng.randint(1, 4) for _ in blocks]
    pairs = list(zip(blocks, rounds, strict=True))
    wanted = [word for block, times in pairs for word in block * times]
    # Release each block at the last word of its last round.
    final = [place == len(b) * n - 1 for b, n in pairs for place in range(len(b) * n)]
    unit = PingPongBuffer(shape=8, depth=6, replays=True)

    def release(ctx: Any, received: Mapping[str, list[int]]) -> None:
        taken = len(received["sink"])
        ctx.set(unit.release, taken < len(final) and final[taken])

    words = [word for block in blocks for word in block]
    check_streams(unit, {"source": words}, {"sink": wanted}, cycle=release)


@pytest.mark.parametrize("length", [2, 3, 8])
def test_neither_side_pauses(length: int) -> None:
    """Both sides transfer one word per cycle; the banks alternate without idle cycles."""
    unit = PingPongBuffer(shape=8, depth=8)
    words = [word for block in blocks_of([length] * 10) for word in block]
    offered, taken = [], []

    def watch(ctx: Any) -> None:
        offered.append(ctx.get(unit.sink.valid))
        taken.append(ctx.get(unit.source.ready))

    run_streams(unit, {"source": words}, {"sink": len(words)}, seed=0, pauses="none", cycle=watch)
    assert all(taken)
    assert offered[: len(words) + 2] == [0, 0, *[1] * len(words)]


def test_next_block_is_written_while_one_is_read() -> None:
    unit = PingPongBuffer(shape=8, depth=4, replays=True)
    (one, two, three) = blocks_of([4, 4, 4])
    left = []

    def watch(ctx: Any) -> None:
        left.append(ctx.get(unit.source.valid) and not ctx.get(unit.source.ready))

    # Nothing is released: two of three blocks fit.
    with pytest.raises(AssertionError, match="stuck"):
        run_streams(
            unit, {"source": one + two + three}, {"sink": 40}, seed=0, pauses="none", cycle=watch
        )
    assert left.index(1) == 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"depth": 1}, "depth must be an integer from 2 to 1048576, not 1"),
        ({"replays": 2}, "replays must be one of False, True, not 2"),
    ],
)
def test_rejects_illegal_parameters(changed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PingPongBuffer(**({"shape": 8, "depth": 4} | changed))
