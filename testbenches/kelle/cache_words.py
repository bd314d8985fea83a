"""What the host writes into Kelle: tokens, those that a prefill keeps, and rows of the KV eDRAM."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.kelle.edram.kv_edram import rows_of, vector_rows
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import Prefill
from golden.kelle.eviction.prefill_selector import Kept
from golden.kelle.kelle import Integers, KelleModel
from hdl.kelle.eviction.eviction_parameters import prefill_layout
from hdl.kelle.parameters import KelleParameters
from testbenches.packing import Bits, pack


def token_words(p: KelleParameters, tokens: Sequence[tuple[int, int]]) -> Bits:
    """Return the tokens of a step, each a sequence and a position, as words of `positions`."""
    sequence, position = np.array(tokens, np.int64).T
    last = np.arange(len(tokens)) == len(tokens) - 1
    return pack(
        p.arriving_layout,
        {"position": position, "sequence": sequence, "last": last * (p.step_tokens > 1)},
    )


def kept_words(p: KelleParameters, kept: Sequence[Kept]) -> Bits:
    """Return tokens as words of `prefill`, in the order of their slots in each head."""
    rows = [(one.head, one.position, one.importance, one.vector) for one in kept]
    head, position, importance, vector = np.array(rows, np.int64).T
    token = {
        "position": position,
        "recomputed": (vector != KEPT).astype(np.int64),
        "vector": np.maximum(vector, 0),
    }
    return pack(
        prefill_layout(p.eviction), {"head": head, "token": token, "importance": importance}
    )


def entry_rows(p: KelleParameters, entry: int, keys: Any, values: Any) -> Bits:
    """Return rows to write, starting at an entry of the eDRAM."""
    first = entry * p.memory.edram.entry_words
    rows = {"address": first + np.arange(len(keys)), "keys": keys, "values": values}
    return pack(p.row_write, rows)


def stored_rows(p: KelleParameters, entry: int, keys: Integers, values: Integers) -> Bits:
    """Return the rows of a key and a value [head_size]."""
    edram = p.memory.edram
    sides = (rows_of(side[np.newaxis], edram)[0] for side in (keys, values))
    return entry_rows(p, entry, *sides)


def input_rows(p: KelleParameters, cache: int, vector: int, values: Integers) -> Bits:
    """Return the rows of a stored input vector of a cache."""
    edram = p.memory.edram
    entry = edram.vector_entry(cache * p.vectors + vector)
    return entry_rows(p, entry, *vector_rows(values, edram))


def cache_rows(p: KelleParameters, model: KelleModel, prefill: Prefill) -> Bits:
    """Return the rows of all tokens that a prefill keeps, and of its stored input vectors."""
    edram, cache = p.memory.edram, model.eviction.layer
    taken, rows = [0] * p.kv_heads, list[Bits]()
    for token in prefill.kept:
        slot, taken[token.head] = taken[token.head], taken[token.head] + 1
        if token.vector == KEPT:
            entry = edram.entry(cache * p.kv_heads + token.head, slot)
            sides = (memory[token.head, slot] for memory in (model.keys, model.values))
            rows.append(stored_rows(p, entry, *sides))
    rows += [input_rows(p, cache, vector, own) for vector, own in model.inputs.items()]
    return np.concatenate(rows)


def state_words(p: KelleParameters, states: Integers) -> Bits:
    """Return the slices of hidden states or inputs."""
    return pack(p.slice_layout, states.reshape(-1, p.rows))
