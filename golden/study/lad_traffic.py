"""Off-chip words at a tile's streams, step after step of its bit-exact model."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.lad_tile import LadTile, Step
from golden.lad.synthetic_trace import SyntheticTrace
from golden.lad.traffic import CLASSES, WORD_BITS, traffic
from golden.study.lad_union import group_heads
from golden.study.outcome import Table
from hdl.lad.catalog import PAPER_TILE, SMOLLM2_TILE
from hdl.lad.parameters import LadTileParameters

MEASURED = 64
"""Steps whose words are shown: the last ones of a trace."""
Vectors = tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]
"""FP16 codes [steps, d] of one head's queries, keys and values."""


@dataclass(frozen=True, eq=False)
class Decoding:
    """The decoding of the query heads that share one key/value head.

    Members
    -------
    name : str
        Name in the table.
    p : LadTileParameters
        The tile that decodes; `p.shared` is the number of heads.
    heads : tuple of Vectors
        Vectors of each query head; all have the same keys and values.
    """

    name: str
    p: LadTileParameters
    heads: tuple[Vectors, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Steps, and the head's size."""
        steps, size = self.heads[0][0].shape
        return steps, size


def real(steps: int, layer: int) -> Decoding:
    """Return the decoding of the first group of query heads of a layer of SmolLM2."""
    p = SMOLLM2_TILE
    heads = tuple(group_heads(p, steps, layer, 0))
    return Decoding(f"SmolLM2, layer {layer}, I = 12, FP32", p, heads)


def synthetic(steps: int) -> Decoding:
    """Return the decoding of a head with the locality that the paper reports."""
    trace = SyntheticTrace(length=steps, directions=max(2, round(300 * np.sqrt(steps / 4096))))
    query, key, value = (codes(part) for part in trace.draw())
    return Decoding("synthetic, I = 5, FP16", PAPER_TILE, ((query, key, value),))


def last_steps(decoding: Decoding, *, alone: bool) -> list[Step]:
    """Return the last steps of a decoding, head after head in each step.

    With `alone` the tile decodes the first head only, and shares nothing.
    """
    p = replace(decoding.p, shared=1, kept=0) if alone else decoding.p
    tile, heads = LadTile(parameters=replace(p, stored_heads=p.shared)), decoding.heads[: p.shared]
    steps = [
        tile.step(number, *(vectors[now] for vectors in head))
        for now in range(decoding.shape[0])
        for number, head in enumerate(heads)
    ]
    return steps[-MEASURED * p.shared :]


def full_attention(decoding: Decoding, *, grouped: bool) -> float:
    """Return the mean words per query head and step of full attention over the last steps.

    It reads all keys and values and writes the new ones: once per group, or for each query head.
    """
    steps, size = decoding.shape
    read = steps - (min(steps, MEASURED) - 1) / 2
    return 2 * size * (read + 1) / (decoding.p.shared if grouped else 1)


@dataclass(frozen=True)
class Machine:
    """One row of the table.

    Members
    -------
    name : str
        The machine.
    words : dict of str to float
        Words per query head and step, by class of traffic; a missing class is not moved.
    hits : str
        Share of J that was fetched ahead or kept by an earlier head of the group.
    """

    name: str
    words: dict[str, float]
    hits: str = ""


def machines_of(decoding: Decoding) -> list[Machine]:
    """Return LAD for one head and for its group, and full attention, grouped and per head."""
    shared, size = decoding.p.shared, decoding.shape[1]
    single = replace(decoding.p, shared=1, kept=0)
    alone = last_steps(decoding, alone=True)
    found = [
        _lad("one head", replace(single, prefetched=0), alone),
        _lad("one head, last J fetched ahead", replace(single, prefetched=2), alone),
    ]
    if shared > 1:
        group = last_steps(decoding, alone=False)
        found.append(_lad(f"group of {shared}, their last J fetched ahead", decoding.p, group))
    for name, grouped in (("grouped", True), ("per query head", False))[: 1 + (shared > 1)]:
        appends = 2 * size / (shared if grouped else 1)
        read = full_attention(decoding, grouped=grouped) - appends
        words = {"K, V of J": read, "appends": appends}
        found.append(Machine(f"full attention, {name}", words))
    return found


def _lad(name: str, p: LadTileParameters, steps: list[Step]) -> Machine:
    bits = traffic(p, steps)
    hits = sum(step.hits for step in steps) / sum(len(step.active) for step in steps)
    words = {what: bits[what] / WORD_BITS / len(steps) for what in CLASSES}
    return Machine(name, words, f"{hits:.1%}" if p.prefetched else "")


def traffic_table(decodings: list[Decoding]) -> Table:
    """Return the words of each decoding, and their ratio to those of full attention."""
    rows = []
    for decoding in decodings:
        full = [full_attention(decoding, grouped=own) for own in (True, False)]
        for machine in machines_of(decoding):
            words = machine.words
            whole = sum(words.values())
            rows.append(
                (
                    decoding.name,
                    str(decoding.shape[0]),
                    machine.name,
                    *(f"{words[what]:,.0f}" if what in words else "" for what in CLASSES),
                    f"{whole:,.0f}",
                    *(f"{whole / reference:.1%}" for reference in full),
                    machine.hits,
                )
            )
    columns = (
        "trace",
        "length",
        "machine",
        *CLASSES,
        "all",
        "of grouped full attention",
        "of full attention per query head",
        "hits",
    )
    return Table(
        title="Off-chip words of a step at the tile's streams",
        columns=columns,
        rows=rows,
        note=(
            f"Words of 16 bits per query head, means of the last {MEASURED} steps, from the "
            "bit-exact model. Grouped: keys and values are fetched once for all query heads that "
            "share them. Full attention reads all keys and values, in the column of J."
        ),
    )
