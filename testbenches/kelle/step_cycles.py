"""Cycles that a step may take, from the accelerator's dimensions."""

from hdl.kelle.parameters import KelleParameters

FETCH_LATENCY, HEAD_LATENCY = 4, 64
"""Cycles of a block's lookup, and of a head's way through everything, beside its work."""


def words_of(p: KelleParameters, beats: int) -> int:
    """Return how many words of `weights` make some beats."""
    return beats * p.beat_bytes // p.channel_bytes if p.weight_memory else beats


def step_bound(p: KelleParameters) -> int:
    """Return the cycles of a step whose tiles each wait for the slowest of load, vectors, fetch.

    Nothing overlaps in it that the accelerator overlaps; refreshes do not count.
    """
    own = max(p.array.array.load_cycles, p.sequences)
    load = max(own, words_of(p, p.array.array.load_cycles))
    projection = p.slices * p.inputs
    block = max(
        2 * p.slices * max(own, p.queries), p.memory.edram.entry_words * (p.rows + FETCH_LATENCY)
    )
    feed_forward = (2 + p.gated) * p.inputs * p.products * load
    return (
        feed_forward
        + 2 * p.query_heads * projection * load
        + 2 * p.heads * projection * max(load, p.members)
        + p.items * (2 * p.tiles + 2) * block
        + (p.items + p.sequences + 1) * (HEAD_LATENCY + 16 * p.rows)
        + 4 * p.sequences * p.inputs
    )
