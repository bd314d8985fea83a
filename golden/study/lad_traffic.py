"""Off-chip words at a tile's streams, step after step of its bit-exact model."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.lad_tile import LadTile, Step
from golden.lad.synthetic_trace import SyntheticTrace
from golden.lad.traffic import CLASSES, WORD_BITS, traffic
from golden.llm import open_trace
from golden.study.outcome import Table
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.lad.presets import PAPER_TILE, SMOLLM2_TILE

LAYER = 14
MEASURED = 64
"""Steps whose words are shown: the last ones of a trace."""


@dataclass(frozen=True, eq=False)
class Decoding:
    """A head's decoding: FP16 codes [steps, d] of queries, keys and values; the tile it is for."""

    name: str
    p: LadTileParameters
    vectors: tuple[NDArray[np.uint16], ...]


def real(steps: int) -> Decoding:
    """Return SmolLM2's first head of a layer."""
    trace = open_trace(text="prose", tokens=max(steps, 640), layers=(0, LAYER, 29))
    head = trace.attention_trace(LAYER, 0)
    queries, keys, values = (getattr(head, name)[:steps] for name in "qkv")
    return Decoding(
        "SmolLM2, I = 12, FP32",
        SMOLLM2_TILE,
        (codes(queries / np.sqrt(trace.head_size)), codes(keys), codes(values)),
    )


def synthetic(steps: int) -> Decoding:
    """Return a head with the locality that the paper reports."""
    drawn = SyntheticTrace(length=steps, directions=max(2, round(300 * np.sqrt(steps / 4096))))
    vectors = tuple(codes(part) for part in drawn.draw())
    return Decoding("synthetic, I = 5, FP16", PAPER_TILE, vectors)


def last_steps(decoding: Decoding) -> list[Step]:
    """Return what the last steps of a decoding gave."""
    tile = LadTile(parameters=replace(decoding.p, heads=1, shared=1, kept=0))
    return [tile.step(0, *vectors) for vectors in zip(*decoding.vectors, strict=True)][-MEASURED:]


def traffic_table(decodings: list[Decoding]) -> Table:
    """Return the words of each decoding beside those of full attention."""
    rows = []
    for decoding in decodings:
        length, size = decoding.vectors[0].shape
        where = (decoding.name, str(length))
        # Full attention reads all keys and values, and writes the new ones.
        full = 2 * size * (length - (min(length, MEASURED) - 1) / 2 + 1)
        steps = last_steps(decoding)
        hits = sum(step.hits for step in steps) / sum(len(step.active) for step in steps)
        for label, prefetched, share in (("no", 0, ""), ("yes", 2, f"{hits:.1%}")):
            bits = traffic(replace(decoding.p, prefetched=prefetched), steps)
            means = [bits[what] / WORD_BITS / len(steps) for what in CLASSES]
            parts = (*(f"{mean:,.0f}" for mean in means), f"{sum(means):,.0f}")
            rows.append((*where, label, *parts, f"{sum(means) / full:.1%}", share))
        nothing = [""] * (len(CLASSES) - 1)
        whole = ("full attention", *nothing, f"{2 * size:,}", f"{full:,.0f}", "100.0%", "")
        rows.append((*where, *whole))
    columns = ("trace", "length", "fetched ahead", *CLASSES, "all", "of full attention", "hits")
    return Table(
        title="Off-chip words of a step at the tile's streams",
        columns=columns,
        rows=rows,
        note=f"Means of the last {MEASURED} steps of one head, from the bit-exact model.",
    )
