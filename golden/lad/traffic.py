"""Off-chip traffic of decode steps by purpose, from the sizes of the paper's sets."""

from collections import Counter
from collections.abc import Iterable

from golden.lad.lad_tile import Step
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.parameters import LadTileParameters

WORD_BITS = 16

CLASSES = (
    "A to F read",
    "A to F written",
    "G read",
    "G written",
    "K of C and M",
    "K, V of J",
    "CNT read",
    "CNT written",
    "appends",
)
"""Purposes of the traffic."""


def traffic(p: LadTileParameters, steps: Iterable[Step]) -> Counter[str]:
    """Return the number of bits that steps move, by purpose.

    G is read and written in whole groups of lanes: cid, dnorm, and one word with mode and count. A
    new position's cid is written with as many bits as it needs. Norms are stored with the keys,
    since only a centre's is ever needed; every key that the scores need is read with its norm.
    Prefetched keys and values are counted with those that still miss.

    Parameters
    ----------
    p : LadTileParameters
        Dimensions of the tile.
    steps : Iterable[Step]
        Steps of any heads.
    """
    d, number, bits = p.vector.head_size, p.eas.position_bits, Counter[str]()
    caches = (d**2 + 3 * d + 2) * p.ac.cache_format.width
    counters = p.table.intervals * COUNT_BITS
    for step in steps:
        positions = step.moved.groups * p.apid.lanes
        fetched, active = len(step.fetched), len(step.active)
        rows = active + step.ahead - step.hits if p.prefetched else active
        bits.update(
            {
                "A to F read": caches,
                "A to F written": caches,
                "G read": positions * 3 * WORD_BITS + fetched * WORD_BITS,
                "G written": positions * WORD_BITS + number + 2 * WORD_BITS,
                "K of C and M": fetched * d * WORD_BITS,
                "K, V of J": rows * 2 * d * WORD_BITS,
                "CNT read": active * counters,
                "CNT written": active * counters,
                "appends": 2 * d * WORD_BITS,
            }
        )
    return bits
