"""LAD's attention of one query head in float64, step by step (Sections III-B to III-E)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.lad.key_centres import THRESHOLD, KeyCentres
from golden.lad.piecewise_linear_exp import Lines, rounded_lines
from hdl.lad.exp_intervals import IntervalParameters

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RECENT = 16
"""Number of latest positions, which are in no cache and active with mode 0."""
COUNT_LIMIT = 4095
"""Saturation value of a counter of 12 bits."""
LARGE_MODES = 2
"""Number of top intervals that are large modes, whose scores are computed exactly."""


@dataclass(kw_only=True, eq=False)
class IntermediateCaches:
    """Intermediate caches A to F of Equation 5.

    Members
    -------
    key_value : array [d, d]
        A: sum of a* k^T v.
    slope_value, intercept_value : array [d]
        B and C: sums of a* v and of b* v.
    slope_key : array [d]
        D: sum of a* k.
    slope, intercept : float
        E and F: sums of a* and of b*.
    """

    key_value: Floats
    slope_value: Floats
    intercept_value: Floats
    slope_key: Floats
    slope: float = 0.0
    intercept: float = 0.0

    @classmethod
    def empty(cls, size: int) -> "IntermediateCaches":
        """Return the caches without any position."""
        return cls(
            key_value=np.zeros((size, size)),
            slope_value=np.zeros(size),
            intercept_value=np.zeros(size),
            slope_key=np.zeros(size),
        )

    @classmethod
    def of_modes(
        cls, keys: Floats, values: Floats, modes: Integers, lines: Lines
    ) -> "IntermediateCaches":
        """Return the caches of all positions with these modes (Equation 5)."""
        slopes, intercepts = lines.slopes[modes], lines.intercepts[modes]
        return cls(
            key_value=(slopes[:, np.newaxis] * keys).T @ values,
            slope_value=slopes @ values,
            intercept_value=intercepts @ values,
            slope_key=slopes @ keys,
            slope=float(slopes.sum()),
            intercept=float(intercepts.sum()),
        )

    def add(self, slope: float, intercept: float, key: Floats, value: Floats) -> None:
        """Change the coefficients of one position by `slope` and `intercept` (Equation 6)."""
        self.key_value += slope * np.outer(key, value)
        self.slope_value += slope * value
        self.intercept_value += intercept * value
        self.slope_key += slope * key
        self.slope += slope
        self.intercept += intercept

    def sums(self, query: Floats, maximum: float) -> tuple[Floats, float]:
        """Return numerator [d] and denominator of the mode-based part of Equation 4."""
        return (
            query @ self.key_value - maximum * self.slope_value + self.intercept_value,
            float(query @ self.slope_key) - maximum * self.slope + self.intercept,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """Result of a decode step of a head.

    Members
    -------
    output : array [d]
        The attention output; 0 if the denominator is not above 0.
    denominator : float
        Denominator of Equation 4.
    maximum : float
        max_s, the maximum of the final scores.
    precise, active, changed : array
        Positions of M, J and U, ascending.
    """

    output: Floats
    denominator: float
    maximum: float
    precise: Integers
    active: Integers
    changed: Integers


@dataclass(kw_only=True, eq=False)
class LocalityAwareHead:
    """One query head; the query heads of a group can share `centres`, which one of them updates.

    Parameters
    ----------
    intervals : IntervalParameters
        Partition and fit of the piecewise linear exponential.
    size : int
        The head size d.
    threshold : float
        Threshold of Algorithm 1; with infinity each key is its own centre, so that all scores are
        exact.

    Members
    -------
    keys, values : list of array [d]
        The KV cache.
    modes : list of int
        Mode interval of each position; 0 for the latest 16.
    counts : list of array [I]
        Number of steps in which each position was in each interval.
    caches : IntermediateCaches
        A to F over all positions except the latest 16.
    """

    intervals: IntervalParameters
    size: int
    threshold: float = THRESHOLD
    keys: list[Floats] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    counts: list[Integers] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin without positions."""
        self.lines = rounded_lines(self.intervals)
        self.centres = KeyCentres(threshold=self.threshold)
        self.caches = IntermediateCaches.empty(self.size)

    def step(self, query: Floats, key: Floats, value: Floats) -> Step:
        """Compute the attention for one token.

        Parameters
        ----------
        query : numpy.ndarray
            [d], divided by the square root of d.
        key, value : numpy.ndarray
            [d], of the new token.
        """
        # Algorithm 1 has not yet found the new key's centre; its score is exact.
        approximate = np.append(self.centres.scores(query), 0.0)
        self.centres.add(key)
        self.keys.append(key)
        self.values.append(value)
        self.modes.append(0)
        self.counts.append(np.zeros(self.intervals.intervals, np.int64))
        n = len(self.keys)
        old = max(n - RECENT, 0)

        scores = np.stack(self.keys) @ query
        precise = np.array(self.modes) >= self.intervals.intervals - LARGE_MODES
        precise[0] = True
        precise[old:] = True
        final = np.where(precise, scores, approximate)
        maximum = float(final.max())

        active = self._identify(final - maximum, old)
        numerator, denominator = self.caches.sums(query, maximum)
        changed = []
        for position in active:
            score = float(scores[position])
            slope, intercept, update = self._discrepancy(position, score - maximum, old)
            correction = slope * score - maximum * slope + intercept
            numerator = numerator + correction * self.values[position]
            denominator += correction
            if update:
                changed.append((position, slope, intercept))
        for position, slope, intercept in changed:
            self.caches.add(slope, intercept, self.keys[position], self.values[position])
        good = denominator > 0
        return Step(
            output=numerator / denominator if good else np.zeros(self.size),
            denominator=denominator,
            maximum=maximum,
            precise=np.flatnonzero(precise),
            active=np.array(active),
            changed=np.array([position for position, _, _ in changed], np.int64),
        )

    def _identify(self, x: Floats, old: int) -> list[int]:
        """Return J; increment the mode's counter of all other positions."""
        active = []
        for position, number in enumerate(self.lines.intervals(x)):
            mode = self.modes[position]
            if position >= old or number != mode:
                active.append(position)
            else:
                self._count(position, mode)
        return active

    def _discrepancy(self, position: int, x: float, old: int) -> tuple[float, float, bool]:
        """Return alpha and beta of an active position, and whether it is in U."""
        number, mode = int(self.lines.intervals(np.array(x))), self.modes[position]
        counts = self.counts[position]
        self._count(position, number)
        slope = float(self.lines.slopes[number] - self.lines.slopes[mode])
        intercept = float(self.lines.intercepts[number] - self.lines.intercepts[mode])
        # The oldest of the latest 16 positions is added to the caches with its interval of this
        # step.
        graduates = position == old and len(self.keys) >= RECENT
        rises = position < old and number != mode and counts[number] > counts[mode]
        if graduates or rises:
            self.modes[position] = number
        return slope, intercept, graduates or rises

    def _count(self, position: int, number: int) -> None:
        counts = self.counts[position]
        counts[number] = min(counts[number] + 1, COUNT_LIMIT)


def piecewise_linear_attention(query: Floats, keys: Floats, values: Floats, lines: Lines) -> Floats:
    """Return Equation 3: attention with the piecewise linear exponential and its own maximum."""
    scores = keys @ query
    weights = np.zeros(len(scores))
    for position, x in enumerate(scores - max(scores)):
        # The last interval whose lower bound is below x.
        number = max((k for k in range(1, len(lines.lower)) if lines.lower[k] < x), default=0)
        weights[position] = lines.slopes[number] * x + lines.intercepts[number]
    return weights @ values / weights.sum()
