"""Key centres of LAD in float64: Algorithm 1, incrementally and from all keys at once."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

THRESHOLD = 0.98
LEAST_NORM = 2.0**-14
"""Replaces the norm of a key of norm 0: the smallest normal FP16 number."""


@dataclass(kw_only=True, eq=False)
class KeyCentres:
    """The key centres of one key/value head.

    Parameters
    ----------
    threshold : float
        Threshold of |cos| above which two keys count as collinear.

    Members
    -------
    keys : list of array [d]
        All keys.
    norms : list of float
        Norms of the keys.
    centre : list of int
        cid: the centre of each key, itself if it is a centre.
    ratio : list of float
        dnorm: the factor of the centre's score.
    members : list of int
        Positions of the centres (C), ascending.
    """

    threshold: float = THRESHOLD
    keys: list[Floats] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    centre: list[int] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    members: list[int] = field(default_factory=list)

    def add(self, key: Floats) -> None:
        """Add the new key of a decode step; ties resolve to the first centre."""
        now = len(self.keys)
        norm = float(np.linalg.norm(key)) or LEAST_NORM
        best, place = 0.0, 0
        for position in self.members:
            cosine = float(key @ self.keys[position]) / (norm * self.norms[position])
            if abs(cosine) > abs(best):
                best, place = cosine, position
        if abs(best) > self.threshold:
            self.centre.append(place)
            self.ratio.append(float(np.sign(best)) * norm / self.norms[place])
        else:
            self.centre.append(now)
            self.ratio.append(1.0)
            self.members.append(now)
        self.keys.append(key)
        self.norms.append(norm)

    def scores(self, query: Floats) -> Floats:
        """Return the scores of all keys, computed from those of their centres."""
        of_centres = {place: float(query @ self.keys[place]) for place in self.members}
        return np.array(
            [of_centres[c] * r for c, r in zip(self.centre, self.ratio, strict=True)], np.float64
        )


def all_centres(keys: Floats, threshold: float = THRESHOLD) -> tuple[NDArray[np.int64], Floats]:
    """Return cid and dnorm of keys [n, d] by brute force, from the matrix of all cosines.

    Independent of `KeyCentres`: a key is a centre if no earlier centre is close to it.
    """
    norms = np.linalg.norm(keys, axis=1)
    norms[norms == 0] = LEAST_NORM
    cosines = (keys @ keys.T) / np.outer(norms, norms)
    close = np.abs(cosines) > threshold
    np.fill_diagonal(close, False)
    centre, ratio = np.arange(len(keys)), np.ones(len(keys))
    is_centre = np.zeros(len(keys), bool)
    for now in range(len(keys)):
        candidates = np.flatnonzero(close[now, :now] & is_centre[:now])
        is_centre[now] = not len(candidates)
        if len(candidates):
            # `argmax` resolves ties to the lowest index.
            best = candidates[np.argmax(np.abs(cosines[now, candidates]))]
            centre[now] = best
            ratio[now] = np.sign(cosines[now, best]) * norms[now] / norms[best]
    return centre, ratio
