"""Test that the weight buffer outputs each segment once per token, and fetches its lines once."""

from typing import Any

import numpy as np
import pytest

from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.control.weight_buffer import WeightBuffer
from hdl.veda.parameters import VedaParameters
from testbenches.stream_trial import run_streams


def parameters(copies: int) -> VedaParameters:
    """Return dimensions with segments of at most 6 lines."""
    p = VedaParameters(
        array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=2),
        copies=copies,
        head_size=8,
        heads=2,
        kv_heads=2,
        hidden_size=6,
        intermediate_size=16,
        block=4,
    )
    assert p.segment_lines == max(6, 2 * p.activated_slices)
    return p


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pauses", ["none", "random"])
@pytest.mark.parametrize("copies", [1, 2])
def test_segments_are_replayed_per_token(seed: int, pauses: str, copies: int) -> None:
    rng = np.random.default_rng(seed)
    p = parameters(copies)
    lines: list[int] = []
    expected: list[int] = []
    marks: list[tuple[bool, bool]] = []
    for _segment in range(30):
        own = [
            int.from_bytes(rng.bytes(p.beat_layout.size // 8), "little")
            for _ in range(rng.integers(1, p.segment_lines + 1))
        ]
        tokens = int(rng.integers(1, p.block + 1))
        lines += own
        expected += own * tokens
        for token in range(tokens):
            keep = token < tokens - 1
            marks += [(keep, keep and place == len(own) - 1) for place in range(len(own))]
    unit = WeightBuffer(parameters=p)
    taken = 0

    def drive(ctx: Any) -> None:
        nonlocal taken
        keep, again = marks[min(taken, len(marks) - 1)]
        ctx.set(unit.hold, keep)
        ctx.set(unit.replay, again)
        taken += ctx.get(unit.sink.valid) and ctx.get(unit.sink.ready)

    got = run_streams(
        unit, {"source": lines}, {"sink": len(expected)}, seed=seed, pauses=pauses, cycle=drive
    )
    assert got["sink"] == expected


def test_replay_takes_no_extra_cycle() -> None:
    """Output five lines for four tokens, twice: one line per cycle after the first."""
    p = parameters(1)
    unit = WeightBuffer(parameters=p)
    gaps: list[bool] = []
    taken = 0

    def drive(ctx: Any) -> None:
        nonlocal taken
        keep = taken % 20 < 15
        ctx.set(unit.hold, keep)
        ctx.set(unit.replay, keep and taken % 5 == 4)
        there = ctx.get(unit.sink.valid)
        taken += there
        gaps.append(not there)

    run_streams(unit, {"source": list(range(10))}, {"sink": 40}, seed=0, pauses="none", cycle=drive)
    assert gaps.index(False) == 2
    assert not any(gaps[2:42])
