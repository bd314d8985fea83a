"""Off-chip traffic of decoding steps, by what it is for, from the sizes of the paper's sets."""

from collections import Counter
from collections.abc import Iterable

from golden.lad.lad_tile import Step
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.lad_tile_parameters import LadTileParameters

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
"""What moves."""


def traffic(p: LadTileParameters, steps: Iterable[Step]) -> Counter[str]:
    """Return the bits that steps move.

    G is read and written in whole groups of lanes: cid, dnorm, and mode with count as one word; a
    new position's cid leaves in as many bits as it needs. Norms stand with the keys, because only a
    centre's is ever needed: with every key that the scores need one is read. What keys and values
    are fetched ahead comes with what then still misses.

    Parameters
    ----------
    p : LadTileParameters
        Dimensions.
    steps : Iterable[Step]
        Of any heads.
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
