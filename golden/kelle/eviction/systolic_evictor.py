"""Bit-exact model of the systolic evictor: effects of wavefronts, and the victim of a search."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Victim:
    """Result of a search.

    Parameters
    ----------
    found : bool
        Whether any slot was a candidate; `index` and `importance` are valid only if so.
    index : int
        Slot of the victim.
    importance : int
        Score S of the victim.
    saturated : bool
        Whether a resident token's score saturated during the search.
    """

    found: bool
    index: int
    importance: int
    saturated: bool


def quantise_scores(scores: NDArray[np.floating], p: SystolicEvictorParameters) -> Integers:
    """Convert real scores to the integers that the array outputs.

    Raw scores are Q6.x, probabilities Q0.x, with all of `input_width` bits used; to nearest, ties
    to even, saturating.
    """
    if p.source is ScoreSource.RAW:
        fraction, low, high = p.input_width - 6, -(1 << p.input_width - 1), 1 << p.input_width - 1
    else:
        fraction, low, high = p.input_width, 0, 1 << p.input_width
    scaled = np.rint(np.asarray(scores, np.float64) * 2.0**fraction)
    return np.clip(scaled, low, high - 1).astype(np.int64)


def less_mean(scores: Integers, p: SystolicEvictorParameters) -> Integers:
    """Return the scores [query heads, tokens] of a prefill's query, less their mean, saturating.

    Software centres the scores of a prefill so that the sums do not depend on a token's age.
    """
    low, high = -(1 << p.input_width - 1), (1 << p.input_width - 1) - 1
    return np.clip(scores - scores.sum(axis=1, keepdims=True) // scores.shape[1], low, high)


def accumulate(
    importance: Integers, scores: Integers, p: SystolicEvictorParameters
) -> tuple[Integers, Flags]:
    """Add scores to importances: S' = saturate(S + floor(score / 2**shift)).

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        The new importances, and where they were saturated.
    """
    total = importance + (scores >> p.shift)
    low, high = -(1 << p.score_width - 1), (1 << p.score_width - 1) - 1
    limited = np.minimum(np.maximum(total, low), high)
    return limited, limited != total


def accumulate_heads(
    importance: Integers, scores: Integers, p: SystolicEvictorParameters
) -> tuple[Integers, Flags]:
    """Add the scores [query heads, tokens] of all query heads, one after the other.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        The new importances, and where any of the sums was saturated.
    """
    saturated = np.zeros(importance.shape, bool)
    for head in scores:
        importance, here = accumulate(importance, head, p)
        saturated |= here
    return importance, saturated


@dataclass(frozen=True)
class Wavefront:
    """One vector's scores for the tokens of a tile, with the state of their slots.

    Parameters
    ----------
    load, compare, last, halve : bool
        The header, as in `hdl.kelle.eviction.systolic_evictor.SystolicEvictor`.
    scores, importance : numpy.ndarray
        int64, one per row.
    valid, protect : numpy.ndarray
        bool, one per row.
    """

    load: bool
    compare: bool
    last: bool
    halve: bool
    scores: Integers
    importance: Integers
    valid: Flags
    protect: Flags


class SystolicEvictorModel:
    """State of the evictor between wavefronts: column S, and the search over the tiles of a head.

    Parameters
    ----------
    parameters : SystolicEvictorParameters
        Dimensions and policy of the evictor.
    """

    def __init__(self, parameters: SystolicEvictorParameters) -> None:
        self.parameters = parameters
        self._column = np.zeros(parameters.rows, np.int64)
        self._column_saturated = np.zeros(parameters.rows, bool)
        self._begin_search()

    def _begin_search(self) -> None:
        self._best: tuple[int, int] | None = None
        self._tiles = 0
        self._saturated = False

    def process(self, wavefront: Wavefront) -> tuple[Integers, Victim | None]:
        """Pass one wavefront down all rows.

        Returns
        -------
        tuple[numpy.ndarray, Victim | None]
            The column S after the wavefront, and the victim if the wavefront was the last of the
            search.
        """
        start = self._column
        if wavefront.load:
            start = np.where(wavefront.valid, wavefront.importance >> int(wavefront.halve), 0)
        self._column, saturated = accumulate(start, wavefront.scores, self.parameters)
        self._column_saturated = saturated if wavefront.load else self._column_saturated | saturated
        if not wavefront.compare:
            return self._column, None
        candidates = np.flatnonzero(wavefront.valid & ~wavefront.protect)
        if len(candidates):
            # Ties resolve to the lowest row, and to the earliest tile.
            row = candidates[self._column[candidates].argmin()]
            found = int(self._column[row]), self._tiles * self.parameters.rows + int(row)
            self._best = min(self._best or found, found)
        self._saturated |= bool((wavefront.valid & self._column_saturated).any())
        self._tiles += 1
        if not wavefront.last:
            return self._column, None
        importance, index = self._best or (0, 0)
        victim = Victim(self._best is not None, index, importance, self._saturated)
        self._begin_search()
        return self._column, victim
