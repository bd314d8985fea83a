"""Algorithm 1 of LAD for whole texts: key centres, and scores by their directions."""

import torch
from torch import Tensor


class KeyCentres:
    """The centres of some key/value heads, for keys that arrive one after the other.

    Parameters
    ----------
    threshold : float
        Above which |cos| a key takes a centre's direction.
    heads : tuple[int, int]
        Sequences and key/value heads.
    capacity : int
        Positions at most.
    size : int
        d.

    Members
    -------
    centre : array [*heads, capacity]
        cid: the position whose key has a position's direction.
    ratio : array [*heads, capacity]
        dnorm: the norms' ratio, negative for opposite directions.
    members : array [*heads, capacity]
        Which positions are centres.
    """

    def __init__(self, threshold: float, heads: tuple[int, int], capacity: int, size: int) -> None:
        self.threshold = threshold
        self.centre = torch.zeros(*heads, capacity, dtype=torch.int64)
        self.ratio = torch.ones(*heads, capacity, dtype=torch.float64)
        self.members = torch.zeros(*heads, capacity, dtype=torch.bool)
        self._units = torch.zeros(*heads, capacity, size, dtype=torch.float64)
        self._norms = torch.ones(*heads, capacity, dtype=torch.float64)
        self._length = 0

    def extend(self, key: Tensor) -> None:
        """Take the keys [*heads, tokens, size] from where the last call ended."""
        first, last = self._length, key.shape[-2]
        norms = key[..., first:, :].norm(dim=-1)
        self._norms[..., first:last] = norms
        # A key of norm 0 is similar to none and so becomes a centre.
        self._units[..., first:last, :] = key[..., first:, :] / norms.clamp(min=1e-300)[..., None]
        cosines = self._units[..., first:last, :] @ self._units[..., :last, :].mT
        for now in range(first, last):
            row = cosines[..., now - first, :now]
            similar = row.abs() * self.members[..., :now]
            # The first of the largest.
            best, place = (
                similar.max(-1) if now else (row.new_zeros(row.shape[:-1]), self.centre[..., 0])
            )
            found = best > self.threshold
            sign = row.gather(-1, place[..., None])[..., 0].sign() if now else best
            ratio = self._norms[..., now] / self._norms.gather(-1, place[..., None])[..., 0]
            self.centre[..., now] = torch.where(found, place, now)
            self.ratio[..., now] = torch.where(found, sign * ratio, 1.0)
            self.members[..., now] = ~found
        self._length = last

    def approximate(self, exact: Tensor) -> Tensor:
        """Return scores [*heads, group, queries, n] from those of the centres among them."""
        n = exact.shape[-1]
        centre = self.centre[:, :, None, None, :n].expand(exact.shape)
        return exact.gather(-1, centre) * self.ratio[:, :, None, None, :n]
