"""Bits that a layer's cache loses, compared with their definition over random histories."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.kelle.edram.retention_times import Retention
from golden.kelle.eviction.eviction_controller import KEPT, Placement
from golden.kelle.kelle import KelleModel, Step
from golden.kelle.lost_bits import LostBits
from hdl.catalog import entry_named
from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.kelle.parameters import KelleParameters

pytestmark = pytest.mark.depends("kelle")

RETENTION = Retention(
    intervals=RefreshIntervals(hst_msb=20_000, lst_msb=40_000, hst_lsb=80_000, lst_lsb=160_000)
)
NUMBER = 1
"""The second of two layers."""


def opened() -> tuple[KelleParameters, KelleModel, LostBits]:
    p = replace(entry_named("kelle").parameters("tiny"), layers=2, words=128)
    none: Any = None
    model = KelleModel(p, none, NUMBER)
    return p, model, LostBits(RETENTION, model)


def inverted(word: int, mask: int) -> int:
    """Invert bits of a 16-bit value, bit by bit."""
    word &= 0xFFFF
    for bit in range(16):
        if mask >> bit & 1:
            word ^= 1 << bit
    return word - (1 << 16) if word & 0x8000 else word


def test_entries_lose_what_their_groups_since_their_write_lose() -> None:
    """Random writes, scores and formats; losses by the definition, value by value."""
    p, model, losses = opened()
    edram, rng = p.memory.edram, np.random.default_rng(3)
    shape = (p.kv_heads, p.slots)
    written = np.zeros((2, *shape, p.head_size), np.int64)
    # Whether an entry is in use, and whether it was ever in the low-score group since its write.
    low, top = np.zeros(shape, bool), (1 << p.eviction.score_bits) - 1
    total = wrong = 0
    for now in range(40):
        step = Step(np.empty(0, np.int64), np.empty(0, np.int64), [], None)
        for head in range(p.kv_heads):
            slot = int(rng.integers(p.slots))
            used = model.eviction.heads[head].positions
            for other in np.flatnonzero(used >= 0):
                score = int(rng.integers(top + 1))
                step.score_updates.append((edram.entry(2 * NUMBER + head, int(other)), score, 1))
                low[head, other] |= score <= top // 2
            row = rng.integers(-(1 << 15), 1 << 15, (2, p.head_size))
            written[:, head, slot] = row
            model.keys[head, slot], model.values[head, slot] = row
            used[slot] = now
            step.placements.append(Placement(head, slot, -1, KEPT))
            step.score_updates.append((edram.entry(2 * NUMBER + head, slot), top, 1))
            low[head, slot] = False
        # The other layer's scores change nothing here.
        step.score_updates.append((edram.entry(0, 0), 0, 1))
        changed = losses.after(step)
        assert losses.flips >= len(changed) > 0 or not changed
        total += losses.flips
        for head, slot in np.ndindex(shape):
            if model.eviction.heads[head].positions[slot] < 0:
                continue
            masks = RETENTION.masks(edram.entry(2 * NUMBER + head, slot), p.head_size)
            for side, stored in enumerate((model.keys, model.values)):
                for channel in range(p.head_size):
                    mask = int(masks[int(low[head, slot]), side, channel])
                    wanted = inverted(int(written[side, head, slot, channel]), mask)
                    assert stored[head, slot, channel] == wanted
                    wrong += mask != 0
        for entry in changed:
            head, slot = divmod(entry.number - 2 * NUMBER * p.slots, p.slots)
            assert np.array_equal(entry.keys, model.keys[head, slot])
            assert np.array_equal(entry.values, model.values[head, slot])
    assert total > 100 and wrong > 100


def test_recomputed_tokens_lose_bits_of_their_input_vector_only() -> None:
    p, model, losses = opened()
    head = model.eviction.heads[0]
    head.positions[2], head.recomputed[2] = 5, 1
    model.keys[0, 2] = 77
    x = np.arange(p.hidden_size) * 1000 - 15_000
    model.inputs[1] = x.copy()
    step = Step(np.empty(0, np.int64), x, [], (5, 1))
    changed = losses.after(step)
    assert np.all(model.keys[0, 2] == 77)
    edram = p.memory.edram
    first = edram.vector_entry(NUMBER * p.vectors + 1)
    assert [entry.number for entry in changed] == [*range(first, first + edram.vector_entries)]
    # An input vector is in the high-score group: keys hold its first half, values its second.
    half = p.hidden_size // 2
    for side in range(2):
        masks = np.concatenate([RETENTION.masks(e.number, p.head_size)[0, side] for e in changed])
        part = x[side * half : (side + 1) * half]
        wanted = [inverted(int(v), int(m)) for v, m in zip(part, masks, strict=False)]
        assert model.inputs[1][side * half : (side + 1) * half].tolist() == wanted
    assert np.any(model.inputs[1] != x)
