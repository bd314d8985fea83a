"""Cycle model of LAD's pipeline stages (Equation 7) and of rivals, and their off-chip words."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hdl.parameters import require_range

Numbers = NDArray[np.float64]

STAGES = ("EAS", "APID", "MD", "AC")
WORDS_A_CYCLE = 128
"""16-bit words per cycle of 1 ns for each of 6 tiles, from 1.5 TB/s."""
VPUS = 7
G_WORDS = 4
"""Words per position in G: norm, dnorm, cid, and (mode, count)."""
COUNTER_BITS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Sizes:
    """The sizes of LAD's sets in each step of a head.

    Members
    -------
    length, centres, exact, active, changed, hits : array [steps]
        n, |C|, |M|, |J|, |U|, and the number of members of J that the previous step's J contains.
    """

    length: Numbers
    centres: Numbers
    exact: Numbers
    active: Numbers
    changed: Numbers
    hits: Numbers


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One tile's attention pipeline.

    Parameters
    ----------
    head_size : int
        Head size d.
    intervals : int
        Number of intervals I, which determines the interval counters.
    cache_words : int
        16-bit words per element of A to F: 1 in FP16, 2 in FP32.
    score_ports : int
        Approximate scores that EAS.2 gathers per cycle, for both lanes; not in the paper.
    shared : int
        Query heads of the model that share one KV head. Full attention fetches keys and values once
        per group, so its words per query head are divided by this number. LAD's words are not
        divided, because its stages fetch separately for each query head.
    """

    head_size: int = 128
    intervals: int = 5
    cache_words: int = 1
    score_ports: int = 32
    shared: int = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("head_size", self.head_size, 8, 256)
        require_range("intervals", self.intervals, 3, 16)
        require_range("cache_words", self.cache_words, 1, 2)
        require_range("score_ports", self.score_ports, 1, 256)
        require_range("shared", self.shared, 1, 64)

    def formula(self, s: Sizes) -> dict[str, Numbers]:
        """Return the four terms of Equation 7, with the head size instead of 128."""
        d = self.head_size
        return {
            "EAS": (2 * s.centres + s.length / d + s.exact) / 2,
            "APID": s.length / 12,
            "MD": s.active / 2,
            "AC": (d + s.active + s.changed * d + 3 * s.changed) / 3,
        }

    def scheduled(self, s: Sizes) -> dict[str, Numbers]:
        """Return the stages' cycles with all ceilings of Algorithm 2 and a realisable gather.

        EAS.2 and the cosines of EAS.5, which need no scores, overlap. AC.2 and AC.4 take one cycle
        each; a column of A takes as many cycles as groups of three of U.
        """
        d = self.head_size
        gather = np.ceil(s.length / self.score_ports)
        cosines = np.ceil(s.centres / 2) + 1
        groups = np.ceil(s.changed / 3)
        return {
            "EAS": np.ceil(s.centres / 2) + np.maximum(gather, cosines) + np.ceil(s.exact / 2),
            "APID": np.ceil(s.length / 12),
            "MD": np.ceil(s.active / 2),
            "AC": ceil(d / 3) + 2 + np.ceil(s.active / 3) + (d + 3) * groups,
        }

    def shared_columns(self, s: Sizes) -> Numbers:
        """Return AC's cycles if its lanes process columns of A in parallel for a small U."""
        d = self.head_size
        return ceil(d / 3) + 2 + np.ceil(s.active / 3) + np.ceil(d * s.changed / 3) + s.changed

    def words(self, s: Sizes) -> dict[str, Numbers]:
        """Return the 16-bit words that a step transfers, by purpose."""
        d = self.head_size
        caches = self.cache_words * (d * d + 3 * d + 2)
        return {
            "key centres": d * s.centres,
            "keys of M": d * s.exact,
            "keys and values of J": 2 * d * s.active,
            "A to F": np.full_like(s.length, 2 * caches),
            "G": 2 * G_WORDS * s.length,
            "counters": 2 * s.active * self.intervals * COUNTER_BITS / 16,
            "new key and value": np.full_like(s.length, 2 * d),
        }

    def full_attention(self, s: Sizes) -> Numbers:
        """Return the words per query head and step of full attention with the model's groups.

        It reads all keys and values and writes the new ones, once per key/value head.
        """
        return self.full_attention_per_head(s) / self.shared

    def full_attention_per_head(self, s: Sizes) -> Numbers:
        """Return the same for a machine that fetches keys and values for each query head."""
        return 2 * self.head_size * (s.length + 1)

    def fetch(self, s: Sizes, *, prefetch: bool) -> Numbers:
        """Return the cycles of the attention period's memory access.

        With `prefetch`, the positions in the previous step's J are already on chip.
        """
        total = sum(self.words(s).values(), np.zeros_like(s.length))
        saved = 2 * self.head_size * s.hits if prefetch else 0.0
        return (total - saved) / WORDS_A_CYCLE

    def interval(self, s: Sizes, *, prefetch: bool = True) -> Numbers:
        """Return the interval between (batch, head) pairs: the slowest stage or the memory."""
        stages = list(self.formula(s).values())
        return np.maximum.reduce([*stages, self.fetch(s, prefetch=prefetch)])

    def ideal(self, s: Sizes) -> Numbers:
        """Return the cycles of grouped full attention at the same throughput and bandwidth."""
        products = 2 * s.length / VPUS
        return np.maximum(products, self.full_attention(s) / WORDS_A_CYCLE)

    def four_bits(self, s: Sizes) -> Numbers:
        """Return the cycles with keys and values in 4 bits, with a 16-bit scale and zero each."""
        words = 2 * (self.head_size / 4 + 2) * (s.length + 1) / self.shared
        return np.maximum(2 * s.length / VPUS, words / WORDS_A_CYCLE)

    def heavy_hitters(self, s: Sizes, share: float = 0.2) -> Numbers:
        """Return the cycles with a cache for a share of the positions, and a score for each.

        As in H2O, each query head has a separate cache and shares no words.
        """
        words = 2 * self.head_size * (share * s.length + 1) + 2 * share * s.length
        return np.maximum(2 * share * s.length / VPUS, words / WORDS_A_CYCLE)
