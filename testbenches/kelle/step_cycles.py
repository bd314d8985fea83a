"""Upper bound of the cycles of a step, from the accelerator's dimensions."""

from hdl.kelle.parameters import KelleParameters

FETCH_LATENCY, HEAD_LATENCY = 3, 64
"""Latency of a block's lookup without the eDRAM's, and of a head through all units, in cycles."""


def words_of(p: KelleParameters, beats: int) -> int:
    """Return the number of words of `weights` in a number of beats."""
    return beats * p.beat_bytes // p.channel_bytes if p.weight_memory else beats


def step_bound(p: KelleParameters) -> int:
    """Return the cycles of a step whose tiles each take the longest of load, vectors and fetch.

    The bound assumes no overlap between operations, and excludes refreshes.
    """
    own = max(p.array.array.load_cycles, p.step_tokens)
    load = max(own, words_of(p, p.array.array.load_cycles))
    projection = p.head_slices * p.hidden_slices
    block = max(
        2 * p.head_slices * max(own, p.group_size),
        p.memory.edram.entry_words * (p.rows + FETCH_LATENCY + p.memory.edram.read_cycles),
    )
    feed_forward = (2 + p.gated) * p.hidden_slices * p.intermediate_slices * load
    return (
        feed_forward
        + 2 * p.heads * projection * load
        + 2 * p.kv_heads * projection * max(load, p.members)
        + p.token_heads * (2 * p.cache_tiles + 2) * block
        + (p.token_heads + p.step_tokens + 1) * (HEAD_LATENCY + 16 * p.rows)
        + 4 * p.step_tokens * p.hidden_slices
    )


def weight_beats(p: KelleParameters, words: int, tokens: int) -> int:
    """Return the beats of the loads of so many words of weights, in a step of some tokens.

    A tile takes at least one cycle per token.
    """
    load = p.array.array.load_cycles
    return words // words_of(p, load) * max(load, tokens)


def load_beats(p: KelleParameters, words: int, tokens: int) -> int:
    """Return the beats of all loads of a step of some tokens with so many words of weights."""
    blocks = tokens * p.kv_heads * (2 * p.cache_tiles + 2)
    return weight_beats(p, words, tokens) + blocks * p.block_cycles


def roofline(p: KelleParameters, words: int, tokens: int) -> int:
    """Return the lower bound of a step: the largest of its words, its loads, and its reads of rows.

    The eDRAM reads rows of keys and of values in parallel.
    """
    rows = tokens * p.kv_heads * p.slots * p.memory.edram.entry_words
    return max(words, load_beats(p, words, tokens), rows)
