"""Test that sums are added to hidden states, which are output and then replaced by the next."""

from typing import Any

import numpy as np
import pytest

from golden.veda.decoder_layer import added
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.control.residual_stream import ResidualStream
from hdl.veda.parameters import VedaParameters
from testbenches.stream_trial import run_streams

SIZE = 10
BLOCK = 3


def vectors(rng: np.random.Generator, count: int) -> Any:
    """Return FP16 codes, shape (count, SIZE)."""
    return rng.normal(size=(count, SIZE)).astype(np.float16).view(np.uint16)


def elements(states: Any, *, final: bool = True, every: bool = True) -> list[int]:
    """Return elements with `last` at every state's end or at the last one's, and with `final`."""
    ends = np.arange(states.size) % SIZE == SIZE - 1
    closes = np.arange(states.size) == states.size - 1
    marks = (ends if every else closes) | (closes & final) << 1
    return [int(code) for code in states.reshape(-1) | marks.astype(np.int64) << 16]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("copies", "pauses"), [(1, "none"), (1, "random"), (2, "random")])
def test_sums_are_added_to_states(seed: int, copies: int, pauses: str) -> None:
    rng = np.random.default_rng(seed)
    p = VedaParameters(
        array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
        copies=copies,
        head_size=8,
        hidden_size=SIZE,
        intermediate_size=16,
        block=BLOCK,
    )
    together = p.array.partial_sums * copies
    blocks, entered, sums, leaves, normed, left = [], [], [], [], [], []
    predicts = []
    matrices = 0
    for _block in range(4):
        states = vectors(rng, int(rng.integers(1, BLOCK + 1)))
        blocks.append(len(states) - 1)
        entered += elements(states, final=False, every=False)
        normed += elements(states)
        count = int(rng.integers(1, 4))
        end_predicts = bool(rng.integers(2))
        matrices += count
        for number in range(count):
            results, closes = vectors(rng, len(states)), number == count - 1
            leave, predict = closes and not end_predicts, closes and end_predicts
            states = added(results, states)
            # Some outputs of each token, then the next outputs.
            for first in range(0, SIZE, together):
                beats = results[:, first : first + together].reshape(-1, copies)
                packed = beats.astype(np.int64) @ (1 << 16 * np.arange(copies))
                sums += [int(beat) for beat in packed]
                leaves += [leave] * len(beats)
                predicts += [predict] * len(beats)
            if leave:
                left.extend(elements(states, final=False))
            else:
                normed.extend(elements(states))
    unit = ResidualStream(parameters=p)
    taken = 0
    finished = 0

    def mark(ctx: Any) -> None:
        nonlocal taken, finished
        ctx.set(unit.leave, leaves[min(taken, len(leaves) - 1)])
        # States that predict enter the norm once more, and are then discarded.
        ctx.set(unit.predict, predicts[min(taken, len(leaves) - 1)])
        taken += ctx.get(unit.sums.valid) and ctx.get(unit.sums.ready)
        finished += ctx.get(unit.finished)
        assert not ctx.get(unit.misplaced)

    sinks = {"elements": len(normed), "states_out": len(left)}
    sources = {"blocks": blocks, "states_in": entered, "sums": sums}
    got = run_streams(unit, sources, sinks, seed=seed, pauses=pauses, cycle=mark)
    assert got == {"elements": normed, "states_out": left}
    assert finished == matrices


@pytest.mark.parametrize("ends", [[], [3], [SIZE - 1, 2 * SIZE - 1], [0, 2 * SIZE - 1]])
def test_misplaced_last_is_reported(ends: list[int]) -> None:
    """As many states enter as the block has tokens, regardless of `last`."""
    p = VedaParameters(
        array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
        head_size=8,
        hidden_size=SIZE,
        intermediate_size=16,
        block=BLOCK,
    )
    states = vectors(np.random.default_rng(1), 2)
    marks = np.isin(np.arange(states.size), ends).astype(np.int64) << 16
    entered = [int(code) for code in states.reshape(-1) | marks]
    unit, reported = ResidualStream(parameters=p), False

    def watch(ctx: Any) -> None:
        nonlocal reported
        reported = bool(ctx.get(unit.misplaced))

    sources = {"blocks": [1], "states_in": entered}
    got = run_streams(unit, sources, {"elements": states.size}, seed=1, cycle=watch)
    assert got["elements"] == elements(states)
    assert reported
