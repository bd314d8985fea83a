"""Synthetic trace with the locality that the paper reports, and SmolLM2 does not have.

The trace contains no text and no model: keys have few directions, and queries differ little from a
constant one. It exercises the hardware in the regime that the paper claims; results on it are no
evidence about a language model.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdl.parameters import require, require_range

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SyntheticTrace:
    """Queries, keys and values of one head.

    Parameters
    ----------
    head_size : int
        The head size d.
    length : int
        Number of steps; the n-th step has n positions.
    directions : int
        Directions of the keys at the end; their number grows with the square root of the steps.
    spread : float
        Standard deviation of the scores over the positions.
    sink : float
        Score of the first position less the mean of the others.
    straying : float
        Standard deviation of a score over the steps.
    persistence : float
        Correlation of a query's deviation with that of the previous step, below 1.
    off_axis : float
        Length of a key's component outside its direction, relative to the key.
    seed : int
        Seed of the random numbers.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    head_size: int = 128
    length: int = 4096
    directions: int = 300
    spread: float = 3.0
    sink: float = 11.0
    straying: float = 0.8
    persistence: float = 0.98
    off_axis: float = 0.05
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_range("head_size", self.head_size, 8, 256)
        require_range("length", self.length, 32, 8192)
        require_range("directions", self.directions, 2, self.length)
        require(0 <= self.persistence < 1, "persistence must be in [0, 1)", self.persistence)
        for name in ("spread", "sink", "straying", "off_axis"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be at least 0", value)

    def draw(self) -> tuple[Floats, Floats, Floats]:
        """Return queries (divided by the square root of d), keys and values [length, d]."""
        rng = np.random.default_rng(self.seed)
        size = self.head_size
        units = rng.normal(size=(self.directions, size))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        # A direction is first used when the square root of the steps reaches its number.
        opened = np.sqrt(np.arange(self.length) / self.length) * self.directions
        known = np.floor(opened).astype(np.int64) + 1
        chosen = np.where(
            np.diff(known, prepend=0) > 0, known - 1, rng.integers(0, known, self.length)
        )
        # Norms of keys vary; scores are normal over directions, so that their product is nearly
        # normal.
        norms = rng.uniform(0.8, 1.2, self.length) * np.sqrt(size)
        aside = rng.normal(size=(self.length, size)) / np.sqrt(size)
        keys = norms[:, np.newaxis] * (units[chosen] + self.off_axis * aside)
        constant = self._vector(rng, self.spread)
        # The sink has a direction of its own, which every query contains.
        away = rng.normal(size=size)
        away /= np.linalg.norm(away)
        keys -= np.outer(keys @ away, away)
        keys[0] = np.sqrt(size) * away
        constant += (self.sink / np.sqrt(size) - constant @ away) * away
        queries = np.empty((self.length, size))
        straying = self._vector(rng, self.straying)
        fresh = np.sqrt(1 - self.persistence**2)
        for now in range(self.length):
            queries[now] = constant + straying
            straying = self.persistence * straying + fresh * self._vector(rng, self.straying)
        return queries, keys, rng.normal(size=(self.length, size))

    def _vector(self, rng: np.random.Generator, deviation: float) -> Floats:
        """Return a query whose scores with random keys have the given standard deviation."""
        return deviation * rng.normal(size=self.head_size) / np.sqrt(self.head_size)
