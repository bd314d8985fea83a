"""Algorithm 1 of LAD for whole texts: key centres, and approximate scores from them."""

import torch
from torch import Tensor


class KeyCentres:
    """The centres of several KV heads, for keys that arrive sequentially.

    Parameters
    ----------
    threshold : float
        Value of |cos| above which a centre's direction represents a key.
    heads : tuple[int, int]
        Sequences and KV heads.
    capacity : int
        Maximum number of positions.
    size : int
        Head size d.

    Members
    -------
    centre : array [*heads, capacity]
        cid: for each position, the position of its centre.
    ratio : array [*heads, capacity]
        dnorm: the ratio of the norms, negative for opposite directions.
    members : array [*heads, capacity]
        Whether a position is a centre.
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
        """Process the keys [*heads, tokens, size] after those of the previous call."""
        first, last = self._length, key.shape[-2]
        norms = key[..., first:, :].norm(dim=-1)
        self._norms[..., first:last] = norms
        # A key of norm 0 has similarity 0 to all centres and so becomes a centre.
        self._units[..., first:last, :] = key[..., first:, :] / norms.clamp(min=1e-300)[..., None]
        cosines = self._units[..., first:last, :] @ self._units[..., :last, :].mT
        for now in range(first, last):
            row = cosines[..., now - first, :now]
            similar = row.abs() * self.members[..., :now]
            # Ties resolve to the lowest position.
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
        """Return approximate scores [*heads, group, queries, n] from those of the centres."""
        n = exact.shape[-1]
        centre = self.centre[:, :, None, None, :n].expand(exact.shape)
        return exact.gather(-1, centre) * self.ratio[:, :, None, None, :n]
