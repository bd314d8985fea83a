"""Tokens chosen of the vocabulary's sums: against numpy, with ties, NaNs, pauses, further texts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.float_values import codes
from golden.lad.lad import first_largest
from hdl.catalog import entry_named
from hdl.lad.control.largest_sum import LargestSum
from hdl.lad.lad_parameters import LadParameters
from testbenches.packing import pack, to_integers

TINY: LadParameters = entry_named("lad").parameters("tiny")


def drawn(rng: np.random.Generator, kind: int, batch: int, tokens: int) -> Any:
    """Return sums [batch, tokens], FP16 codes: few values, negative ones, no numbers, any codes."""
    few = codes(rng.integers(-3, 3, (batch, tokens)) / 2)
    few = np.where(few == 0, rng.choice([0, 0x8000], few.shape), few)
    noise = rng.integers(0, 1 << 16, few.shape)
    nothing = np.full(few.shape, 0xFE01)
    return [few, few | 0x8000, nothing, noise][kind].astype(np.uint16)


@pytest.mark.parametrize(("vocabulary", "batch"), [(45, 2), (56, 1), (1, 2)])
def test_the_first_of_the_largest(vocabulary: int, batch: int) -> None:
    p = replace(TINY, vocabulary=vocabulary, batch=batch)
    unit, rng = LargestSum(parameters=p), np.random.default_rng(vocabulary)
    units, groups = p.tile.linear.units, p.pieces * p.piece_groups
    searches = [drawn(rng, kind, batch, vocabulary) for kind in (0, 1, 2, 3, 0)]
    payloads = []
    for sums in searches:
        # Rows that are no token's are as large as can be.
        rows = np.full((batch, groups * units), 0x7BFF)
        rows[:, :vocabulary] = sums
        turns = rows.reshape(batch, groups, units).swapaxes(0, 1).reshape(-1, units)
        fields = {"sums": turns, "last": np.zeros(len(turns), np.int64)}
        payloads += to_integers(pack(p.tile.linear.output_layout, fields))
    expected = [first_largest(own) for sums in searches for own in sums]
    found: list[tuple[int, int]] = []

    async def feed(context: Any) -> None:
        for payload in payloads:
            while rng.random() < 0.3:
                await context.tick()
            context.set(unit.sums.valid, 1)
            layout = p.tile.linear.output_layout
            context.set(unit.sums.payload, layout.from_bits(payload))
            await context.tick().until(unit.sums.ready)
            context.set(unit.sums.valid, 0)

    async def take(context: Any) -> None:
        while len(found) < len(expected):
            context.set(unit.predictions.ready, int(rng.random() < 0.5))
            _edge, _reset, valid, ready, payload = await context.tick().sample(
                unit.predictions.valid, unit.predictions.ready, unit.predictions.payload
            )
            if valid and ready:
                found.append((int(payload.token), int(payload.sum)))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(feed)
    simulator.add_testbench(take)
    simulator.run()
    assert found == expected
