"""Rows in INT8 with an exponent: the model by exact fractions, the unit by the model."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.meadow.tile.requantisation import narrowed_rows
from hdl.catalog import entry_named
from hdl.meadow.control.row_narrower import RowNarrower
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.tile_parameters import MOST_EXPONENT

P: MeadowParameters = replace(
    entry_named("meadow").parameters("tiny"), token_exponents=True, tokens=5
)
WORDS = 3


def random_rows(rng: np.random.Generator, rows: int, elements: int) -> Any:
    """Return rows of all magnitudes, whose elements differ by powers of two.

    Some elements are at the ends of a number of bits.
    """
    bits = rng.integers(1, 25, rows)
    top = 1 << bits - 1
    values = rng.integers(-top[:, None], top[:, None], (rows, elements))
    values >>= rng.integers(0, 8, values.shape)
    ends = np.where(rng.random((rows, elements)) < 0.5, -top[:, None], top[:, None] - 1)
    return np.where(rng.random((rows, elements)) < 0.05, ends, values)


def test_exponent_is_the_largest_with_which_all_elements_fit() -> None:
    rows = random_rows(np.random.default_rng(1), 2000, 6)
    found, exponents = narrowed_rows(rows)
    assert set(exponents.tolist()) == set(range(MOST_EXPONENT + 1))
    ties = 0
    for row, narrow, exponent in zip(
        rows.tolist(), found.tolist(), exponents.tolist(), strict=True
    ):
        shift = MOST_EXPONENT - exponent
        assert all(-128 <= value >> shift <= 127 for value in row)
        assert shift == 0 or any(not -128 <= value >> shift - 1 <= 127 for value in row)
        for value, one in zip(row, narrow, strict=True):
            exact = Fraction(value, 1 << shift)
            ties += exact.denominator == 2
            assert one == min(127, round(exact))
    assert ties > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_equal_the_model_in_any_order_of_writes(seed: int) -> None:
    """Rows of the norm are written one by one, those of the combiner word by word of all tokens."""
    rng, pauses = np.random.default_rng(seed), random.Random(seed)
    unit: Any = RowNarrower(parameters=P)
    size = P.head_size
    received: list[Any] = []
    expected: list[Any] = []

    async def step(ctx: Any, cycles: int = 1) -> None:
        """Take the word that the unit outputs, in 60 % of the cycles."""
        for _cycle in range(cycles):
            _clock, _reset, valid, ready, payload = await ctx.tick().sample(
                unit.tokens.valid, unit.tokens.ready, unit.tokens.payload
            )
            if valid and ready:
                word = [payload.word[i] for i in range(size)]
                received.append((word, payload.exponent, payload.last))
            ctx.set(unit.tokens.ready, int(pauses.random() < 0.6))

    async def write(ctx: Any, combined: int, rows: Any) -> None:
        order = [(token, word) for token in range(len(rows)) for word in range(WORDS)]
        if combined:
            order.sort(key=lambda place: place[1])
        for token, word in order:
            while pauses.random() < 0.3:
                await step(ctx)
            ctx.set(unit.written, 1)
            ctx.set(unit.first, int(word == 0))
            ctx.set(unit.target, {"combined": combined, "token": token})
            ctx.set(unit.word, [int(v) for v in rows[token, word]])
            await step(ctx)
            ctx.set(unit.written, 0)
        await step(ctx, 2)

    async def read(ctx: Any, combined: int, rows: Any) -> None:
        narrow, exponents = narrowed_rows(rows.reshape(len(rows), -1))
        words = [(token, word) for token in range(len(rows)) for word in range(WORDS)]
        waiting, held = list(words), None
        # The word that was read last stays at the input until the unit takes it.
        while waiting or held:
            ctx.set(unit.words.valid, int(held is not None))
            if held is not None:
                ctx.set(unit.words.payload.word, [int(value) for value in rows[held]])
                ctx.set(unit.words.payload.last, int(held == words[-1]))
            free = held is None or ctx.get(unit.words.ready)
            starts = bool(free and waiting and pauses.random() < 0.7)
            ctx.set(unit.read, int(starts))
            if starts:
                ctx.set(unit.source, {"combined": combined, "token": waiting[0][0]})
            await step(ctx)
            if free:
                held = waiting.pop(0) if starts else None
        ctx.set(unit.words.valid, 0)
        ctx.set(unit.read, 0)
        for place, row in zip(words, narrow.reshape(-1, size), strict=True):
            expected.append((row.tolist(), int(exponents[place[0]]), int(place == words[-1])))

    async def bench(ctx: Any) -> None:
        for _block in range(6):
            both = []
            for combined in (0, 1):
                tokens = int(rng.integers(1, P.tokens + 1))
                rows = random_rows(rng, tokens, WORDS * size).reshape(tokens, WORDS, size)
                both.append(rows)
                await write(ctx, combined, rows)
            # Both kinds of rows stay readable.
            for combined in rng.permutation(2).tolist():
                await read(ctx, combined, both[combined])
        await step(ctx, 40)

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert received == expected
    assert len({exponent for _word, exponent, _last in received}) > 5
