"""Bits that a layer's cache loses between two refreshes (Sections 4.2 and 7.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.kelle.edram.refresh_controller import high_group
from golden.kelle.edram.retention_times import Masks, Retention, flipped
from golden.kelle.eviction.eviction_controller import EMPTY, KEPT, ScoreUpdate
from golden.kelle.kelle import Integers, KelleModel, Step

INTACT, HIGH, LOW = 0, 1, 2
"""Lost bits of an entry since its last write: none, those of a high score, those of a low one."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of the eDRAM after a loss of bits.

    Parameters
    ----------
    number : int
        Number of the entry in the address map.
    keys, values : numpy.ndarray
        int64 [head_size], its new contents.
    """

    number: int
    keys: Integers
    values: Integers


class LostBits:
    """The losses of one layer's cache, with the groups of its refresh controllers.

    A written entry loses its bits between the step that writes it and the next step, and those of
    the low-score group when it first enters that group. A bit that is lost is refreshed as it is
    until the entry is written again.

    Parameters
    ----------
    retention : Retention
        Refresh intervals, and retention times of the cells.
    model : KelleModel
        The layer, whose cache is changed.

    Members
    -------
    flips : int
        Bits that the last call has inverted.
    """

    def __init__(self, retention: Retention, model: KelleModel) -> None:
        p = model.parameters
        self.retention, self.model = retention, model
        self.flips = 0
        self._edram = p.memory.edram
        self._layer = model.eviction.layer
        shape = (p.kv_heads, p.slots)
        self._lost: NDArray[np.int64] = np.full(shape, INTACT)
        self._scores = np.zeros(shape, np.int64)

    def after_prefill(self, updates: Sequence[ScoreUpdate]) -> None:
        """Lose bits of prefilled entries, with the score updates of the prefill."""
        self._lose(updates)
        for vector, owner in enumerate(self.model.eviction.vectors):
            if owner:
                self._lose_vector(vector)

    def after(self, step: Step) -> list[Entry]:
        """Lose bits after a step, whose input vector is stored; return the changed entries."""
        self.flips = 0
        for placement in step.placements:
            self._lost[placement.head, placement.slot] = INTACT
        changed = self._lose(step.score_updates)
        if step.store:
            changed += self._lose_vector(step.store[1])
        return changed

    def _lose(self, updates: Sequence[ScoreUpdate]) -> list[Entry]:
        """Lose bits of the slots whose group, by its latest scores, requires it."""
        model, p = self.model, self.model.parameters
        first = self._layer * p.kv_heads * p.slots
        scores = self._scores.reshape(-1)
        for entry, score, _valid in updates:
            # Entries of input vectors follow the slots of all layers.
            if 0 <= entry - first < scores.size:
                scores[entry - first] = score
        high = high_group(self._scores, p.eviction.score_bits)
        wanted = np.where(high, HIGH, LOW)
        for number, head in enumerate(model.eviction.heads):
            stored = (head.positions != EMPTY) & (head.recomputed == KEPT)
            wanted[number, ~stored] = INTACT
        changed = []
        for number, slot in np.argwhere(wanted > self._lost).tolist():
            entry = self._edram.entry(self._layer * p.kv_heads + number, slot)
            masks = self.retention.masks(entry, p.head_size)
            before, now = self._lost[number, slot], wanted[number, slot]
            # The bits lost so far are a part of those of the low-score group.
            mask = masks[now - 1] ^ (masks[before - 1] if before else 0)
            self._lost[number, slot] = now
            if not mask.any():
                continue
            for side, cells in ((model.keys, mask[0]), (model.values, mask[1])):
                side[number, slot] = flipped(side[number, slot], cells)
            self._count(mask)
            changed.append(Entry(entry, model.keys[number, slot], model.values[number, slot]))
        return changed

    def _lose_vector(self, vector: int) -> list[Entry]:
        """Lose bits of a stored input vector, which always has the highest score."""
        model, edram, p = self.model, self._edram, self.model.parameters
        first = edram.vector_entry(self._layer * p.vectors + vector)
        shape = (2, edram.vector_entries * p.head_size)
        stored = np.zeros(shape, np.int64)
        half = p.hidden_size // 2
        stored[:, :half] = model.inputs[vector].reshape(2, half)
        masks = [
            self.retention.masks(first + number, p.head_size)[HIGH - 1]
            for number in range(edram.vector_entries)
        ]
        mask = np.concatenate(masks, axis=1)
        read = flipped(stored, mask)
        self._count(mask[:, :half])
        model.inputs[vector] = read[:, :half].reshape(-1)
        entries = read.reshape(2, -1, p.head_size)
        return [
            Entry(first + number, entries[0, number], entries[1, number])
            for number in range(edram.vector_entries)
        ]

    def _count(self, mask: Masks) -> None:
        self.flips += int(np.bitwise_count(mask).sum())
