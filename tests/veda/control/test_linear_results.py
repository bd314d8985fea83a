"""Test that rows of each kind are routed to their destination, in order, under any stalls."""

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value

from hdl.catalog import entry_named
from hdl.veda.control.linear_results import LinearResults
from hdl.veda.instructions import RowKind
from hdl.veda.parameters import VedaParameters
from testbenches.stream_trial import run_streams

FORMS: list[tuple[str, dict[str, bool]]] = [
    *((preset, {}) for preset in ("tiny", "tiny_wide", "tiny_two_copies", "tiny_vocabulary")),
    ("tiny_opt", {}),
    ("tiny_two_copies", {"rotary": False}),
    ("tiny_two_copies", {"gated": False}),
]
"""Presets, and changes to them."""


class Functions:
    """Models of rotary embedding and activation, with a latency of some cycles.

    The first exchanges a pair's elements and adds the angle, the second adds the two operands, all
    as integers: any error in a pair changes the result.
    """

    def __init__(self, unit: LinearResults) -> None:
        self.unit = unit
        self.turned: deque[int] = deque()
        self.activated: deque[int] = deque()

    def __call__(self, ctx: Any) -> None:
        """Accept and offer one item of each function."""
        unit, p = self.unit, self.unit.parameters
        functions: list[Any] = []
        if p.rotary:
            functions.append((self.turned, unit.pairs, unit.rotated, turn))
        if p.gated:
            functions.append((self.activated, unit.operands, unit.activated, activate))
        for waiting, source, sink, result in functions:
            ctx.set(sink.valid, bool(waiting))
            if waiting:
                ctx.set(Value.cast(sink.payload), waiting[0])
            ctx.set(source.ready, len(waiting) < 3)
            if waiting and ctx.get(sink.ready):
                waiting.popleft()
            if ctx.get(source.valid) and ctx.get(source.ready):
                waiting.append(result(ctx.get(Value.cast(source.payload))))


def halves(packed: int, count: int) -> list[int]:
    """Return the 16-bit numbers of a payload, then the remaining upper bits."""
    numbers = [packed >> 16 * place & 0xFFFF for place in range(count)]
    return [*numbers, packed >> 16 * count]


def turn(packed: int) -> int:
    """Return the model's result for a rotated pair."""
    x, y, cosine, sine, last = halves(packed, 4)
    return (y + cosine & 0xFFFF) | (x + sine & 0xFFFF) << 16 | last << 32


def activate(packed: int) -> int:
    """Return the model's result for an activated element."""
    gate, up, last = halves(packed, 2)
    return (gate + 3 * up & 0xFFFF) | last << 16


def packed(numbers: Any) -> int:
    """Return 16-bit numbers as one payload."""
    return int.from_bytes(np.asarray(numbers).astype("<u2").tobytes(), "little")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("preset", "changes"), FORMS)
def test_rows_are_routed_by_kind(preset: str, changes: dict[str, bool], seed: int) -> None:
    p: VedaParameters = replace(entry_named("veda").parameters(preset), **changes)
    rng = np.random.default_rng(seed)
    unit = LinearResults(parameters=p)
    angles = rng.integers(0, 1 << 16, (2, p.block, p.head_size))
    rows: list[int] = []
    wanted: dict[str, list[int]] = {"projections": [], "outputs": [], "slices": []}
    if p.vocabulary_size:
        wanted["logits"] = []

    def send(kind: RowKind, tokens: int) -> Any:
        numbers = rng.integers(0, 1 << 16, p.row_elements)
        marks = {"kind": kind.value, "last_token": tokens - 1}
        layout = p.row_layout
        rows.append(packed(numbers) | sum(n << layout[name].offset for name, n in marks.items()))
        return numbers

    def turned(numbers: Any, own: Any) -> Any:
        pairs = numbers.reshape(-1, p.head_size // 2, 2)
        return pairs[..., ::-1] + own.reshape(-1, 2)

    half = p.array.width // 2
    place_bits = p.slice_layout["last"].offset - 16 * half

    def expect(halves: Any, places: Any) -> None:
        """Expect halves of vectors in this order, with a mark at the last one."""
        for number, (own, place) in enumerate(zip(halves, places, strict=True)):
            mark = int(place) | (number == len(places) - 1) << place_bits
            wanted["slices"].append(packed(own) | mark << 16 * half)

    blocks = (p.block, int(rng.integers(1, p.block + 1)))
    sets: list[int] = []
    for tokens, their_angles in zip(blocks, angles, strict=True):
        sets += [
            packed(own) | (token == tokens - 1) << 16 * p.head_size
            for token, own in enumerate(their_angles[:tokens])
        ]
        for number in range(p.projected_rows):
            for own in their_angles[:tokens]:
                row = send(RowKind.PROJECTED, tokens)
                straight = p.kv_rounds <= number < 2 * p.kv_rounds or not p.rotary
                wanted["projections"].append(packed(row if straight else turned(row, own)))
        attended = [send(RowKind.ATTENDED, tokens) for _ in range(tokens * p.rounds)]
        expect(np.reshape(attended, (-1, half)), range(2 * tokens * p.attended_slices))
        activated = []
        for _number in range(p.gated_rows):
            for _token in range(tokens):
                row = send(RowKind.GATED, tokens)
                gates, ups = row.reshape(-1, 2).T
                # Without a gate, numbers with a sign become zero.
                activated.append(gates + 3 * ups if p.gated else np.where(row >> 15, 0, row))
        # Rows arrive token by token; the vectors of a token are stored contiguously.
        places = np.arange(2 * tokens * p.activated_slices)
        expect(
            np.reshape(activated, (-1, half)),
            places.reshape(tokens, p.gated_rows, -1).swapaxes(0, 1).reshape(-1),
        )
        # Rows of logits are only announced.
        for _number in range(3 * tokens if p.vocabulary_size else 0):
            send(RowKind.LOGITS, tokens)
            wanted["logits"].append(tokens - 1)
        # Attention alone may occur between two layers.
        wanted["outputs"].append(packed(send(RowKind.OUTPUT, tokens)))

    functions = Functions(unit)

    # In the accelerator the slice buffer and the queries are free before the next kind arrives:
    # here a sink that accepts all items is equivalent.
    sinks = {name: len(items) for name, items in wanted.items()}
    sources = {"rows": rows} | ({"angles": sets} if p.rotary else {})
    got = run_streams(unit, sources, sinks, seed=seed, cycle=functions)
    assert got == wanted
