"""Key centres of LAD in float64: Algorithm 1, line by line and all at once."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

THRESHOLD = 0.98
LEAST_NORM = 2.0**-14
"""Taken for the norm of a key of norm 0: the smallest normal FP16 number."""


@dataclass(kw_only=True, eq=False)
class KeyCentres:
    """The centres of one key/value head.

    Parameters
    ----------
    threshold : float
        Above which |cos| two keys count as collinear.

    Members
    -------
    keys : list of array [d]
        Every key.
    norms : list of float
        Their lengths.
    centre : list of int
        cid: the centre whose direction a key has, itself if it is one.
    ratio : list of float
        dnorm: by what the centre's score is multiplied.
    members : list of int
        The centres, ascending.
    """

    threshold: float = THRESHOLD
    keys: list[Floats] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    centre: list[int] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    members: list[int] = field(default_factory=list)

    def add(self, key: Floats) -> None:
        """Take the new key of a decoding step; of equal cosines the first centre wins."""
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
        """Return the scores of all keys by their centres' directions."""
        of_centres = {place: float(query @ self.keys[place]) for place in self.members}
        return np.array(
            [of_centres[c] * r for c, r in zip(self.centre, self.ratio, strict=True)], np.float64
        )


def all_centres(keys: Floats, threshold: float = THRESHOLD) -> tuple[NDArray[np.int64], Floats]:
    """Return cid and dnorm of keys [n, d] by brute force, from the matrix of all cosines.

    Written apart from `KeyCentres`: a key is a centre if no earlier centre is close to it.
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
            # `argmax` takes the first of equal values.
            best = candidates[np.argmax(np.abs(cosines[now, candidates]))]
            centre[now] = best
            ratio[now] = np.sign(cosines[now, best]) * norms[now] / norms[best]
    return centre, ratio
