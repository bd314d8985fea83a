"""Rows of keys and values that the query heads of a group fetch, separately and as a union."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.lad_tile import LadTile, Step
from golden.llm import open_trace
from golden.study.outcome import Table
from hdl.lad.catalog import SMOLLM2_TILE
from hdl.lad.parameters import LadTileParameters

LAYERS = (0, 14, 29)
MEASURED = 64
"""Number of last steps of a trace over which rows are averaged."""


def group_heads(
    p: LadTileParameters, steps: int, layer: int, group: int
) -> list[tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]]:
    """Return FP16 codes [steps, d] of queries, keys and values for each query head of a group.

    The vectors are SmolLM2's for the prose text; queries are divided by sqrt(d).
    """
    trace = open_trace(text="prose", tokens=max(steps, 640), layers=LAYERS)
    heads = [trace.attention_trace(layer, group * p.shared + one) for one in range(p.shared)]
    scale = np.sqrt(trace.head_size)
    return [
        (codes(head.q[:steps] / scale), codes(head.k[:steps]), codes(head.v[:steps]))
        for head in heads
    ]


def group_steps(p: LadTileParameters, steps: int, layer: int, group: int) -> list[Step]:
    """Return the decode steps of all query heads of a KV head, token by token, heads in order."""
    heads = group_heads(p, steps, layer, group)
    tile = LadTile(parameters=replace(p, stored_heads=p.shared))
    return [
        tile.step(number, *(vectors[now] for vectors in head))
        for now in range(steps)
        for number, head in enumerate(heads)
    ]


def rows_of(p: LadTileParameters, steps: list[Step]) -> dict[str, float]:
    """Return the rows per step and head: J, and fetches per head and by union, with prefetch.

    "model" is the tile model's own count; all other figures are computed from the sets J.
    """
    shared = p.shared
    sets = [[set(step.active.tolist()) for step in steps[at::shared]] for at in range(shared)]
    tokens = range(len(steps) // shared - MEASURED, len(steps) // shared)
    together = [set[int]().union(*token) for token in zip(*sets, strict=True)]
    counts = {
        "J": sum(len(head[now]) for head in sets for now in tokens),
        "alone, ahead": sum(len(head[now] | head[now - 1]) for head in sets for now in tokens),
        "union": sum(len(together[now]) for now in tokens),
        "union, ahead": sum(len(together[now] | together[now - 1]) for now in tokens),
        "model": sum(
            len(step.active) + step.ahead - step.hits for step in steps[-MEASURED * shared :]
        ),
    }
    return {name: count / MEASURED / shared for name, count in counts.items()}


def union_table(steps: int = 640, layers: tuple[int, ...] = LAYERS) -> Table:
    """Return the table of rows for the first group of several layers."""
    rows = []
    for layer in layers:
        p = SMOLLM2_TILE
        found = rows_of(p, group_steps(p, steps, layer, 0))
        saved = 1 - found["union"] / found["J"], 1 - found["model"] / found["alone, ahead"]
        rows.append(
            (
                str(layer),
                *(f"{found[name]:.1f}" for name in found),
                *(f"{one:.1%}" for one in saved),
            )
        )
    return Table(
        title="Rows of keys and values per step: separate heads, and the union of a group",
        columns=(
            "layer",
            "J",
            "J, ahead",
            "union",
            "union, ahead",
            "the tile's",
            "saved",
            "saved, ahead",
        ),
        rows=rows,
        note=f"Three heads of a group, {steps} tokens; means of the last {MEASURED} steps of each.",
    )
