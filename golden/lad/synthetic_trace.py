"""A synthetic trace with the locality that the paper reports, and SmolLM2 does not have.

No text and no model: keys lie on few directions, and queries stray little from a constant one. It
shows the hardware in the regime that the paper claims; what is measured on it says nothing about a
language model.
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
        d.
    length : int
        Steps; the n-th one has n positions.
    directions : int
        On which the keys lie at the end; their number grows with the root of the steps.
    spread : float
        Standard deviation of the scores over the positions.
    sink : float
        By how much the first position's score is above the mean of the others.
    straying : float
        Standard deviation of a score over the steps.
    persistence : float
        Correlation of a query's straying with the one before, below 1.
    spoilt : float
        Length of a key's part outside its direction, relative to the key.
    seed : int
        Of the random numbers.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    head_size: int = 128
    length: int = 4096
    directions: int = 300
    spread: float = 3.0
    sink: float = 11.0
    straying: float = 0.8
    persistence: float = 0.98
    spoilt: float = 0.05
    seed: int = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("head_size", self.head_size, 8, 256)
        require_range("length", self.length, 32, 8192)
        require_range("directions", self.directions, 2, self.length)
        require(0 <= self.persistence < 1, "persistence must be in [0, 1)", self.persistence)
        for name in ("spread", "sink", "straying", "spoilt"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be at least 0", value)

    def draw(self) -> tuple[Floats, Floats, Floats]:
        """Return queries, keys and values [length, d]; queries are divided by the root of d."""
        rng = np.random.default_rng(self.seed)
        size = self.head_size
        units = rng.normal(size=(self.directions, size))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        # The first of each direction comes where the root of the steps reaches its number.
        opened = np.sqrt(np.arange(self.length) / self.length) * self.directions
        known = np.floor(opened).astype(np.int64) + 1
        chosen = np.where(
            np.diff(known, prepend=0) > 0, known - 1, rng.integers(0, known, self.length)
        )
        # Norms of keys vary; scores are normal over directions, so their product is nearly so.
        norms = rng.uniform(0.8, 1.2, self.length) * np.sqrt(size)
        aside = rng.normal(size=(self.length, size)) / np.sqrt(size)
        keys = norms[:, np.newaxis] * (units[chosen] + self.spoilt * aside)
        constant = self._vector(rng, self.spread)
        # The sink has a direction of its own that every query contains.
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
        """Return a query whose scores over random keys have a standard deviation."""
        return deviation * rng.normal(size=self.head_size) / np.sqrt(self.head_size)
