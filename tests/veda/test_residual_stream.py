"""The hidden state goes round, meets its sums, leaves, and makes way for the next."""

from typing import Any

import numpy as np
import pytest

from golden.veda.decoder_layer import added
from hdl.veda.array_parameters import FlexiblePeArrayParameters
from hdl.veda.residual_stream import ResidualStream
from hdl.veda.veda_parameters import VedaParameters
from testbenches.veda.stream_trial import run_streams


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("copies", "busy"), [(1, 1.0), (1, 0.5), (2, 0.5)])
def test_states_meet_their_sums(seed: int, copies: int, busy: float) -> None:
    rng = np.random.default_rng(seed)
    size = 10
    p = VedaParameters(
        array=FlexiblePeArrayParameters(rows=2, columns=2),
        copies=copies,
        head_size=8,
        hidden_size=size,
        feed_forward_size=16,
    )

    def vector() -> Any:
        return rng.normal(size=size).astype(np.float16).view(np.uint16)

    def elements(state: Any) -> list[int]:
        return [int(code) | (place == size - 1) << 16 for place, code in enumerate(state)]

    entered, sums, leaves, normed, left = [], [], [], [], []
    for _token in range(3):
        state = vector()
        entered += elements(state)
        normed += elements(state)
        count = int(rng.integers(1, 4))
        for number in range(count):
            results, leave = vector(), number == count - 1
            state = added(results, state)
            beats = results.reshape(-1, copies)
            sums += [int(sum(int(code) << 16 * n for n, code in enumerate(row))) for row in beats]
            leaves += [leave] * len(beats)
            (left if leave else normed).extend(elements(state))
    unit = ResidualStream(parameters=p)
    taken = 0
    finished = 0

    def mark(ctx: Any) -> None:
        nonlocal taken, finished
        ctx.set(unit.leave, leaves[min(taken, len(leaves) - 1)])
        taken += ctx.get(unit.sums.valid) and ctx.get(unit.sums.ready)
        finished += ctx.get(unit.finished)

    sinks = {"elements": len(normed), "states_out": len(left)}
    sources = {"states_in": entered, "sums": sums}
    got = run_streams(unit, sources, sinks, seed=seed, busy=busy, cycle=mark)
    assert got == {"elements": normed, "states_out": left}
    assert finished * size == len(sums) * copies
