"""LAD's intermediate caches A to F, stored and updated in reduced precision."""

import torch
from torch import Tensor

TOGETHER = 3
"""Positions that the reduction module adds per cycle."""


class RoundedCaches:
    """The caches A to F of several heads; each sum and product of an update is rounded.

    The order is that of the hardware, which adds the products of three positions and then adds the
    sum to the cache (AC.5 to AC.8, Algorithm 2).

    Parameters
    ----------
    dtype : torch.dtype
        Type in which the caches are stored and updated.
    heads : tuple[int, int, int]
        Sequences, KV heads, query heads per KV head.
    size : int
        Head size d.

    Members
    -------
    matrix : array [*heads, size + 1, size + 1]
        A, with B as last row, D as last column and E in the corner: sums of a* [k, 1]^T [v, 1].
    vector : array [*heads, size + 1]
        C and F: sums of b* [v, 1].
    """

    def __init__(self, dtype: torch.dtype, heads: tuple[int, int, int], size: int) -> None:
        self.matrix = torch.zeros(*heads, size + 1, size + 1, dtype=dtype)
        self.vector = torch.zeros(*heads, size + 1, dtype=dtype)

    def attend(self, query: Tensor, maximum: Tensor) -> tuple[Tensor, Tensor]:
        """Return the caches' part of the numerator [*heads, size] and of the denominator."""
        extended = torch.cat([query, -maximum[..., None]], -1)
        both = (extended[..., None, :] @ self.matrix.to(query.dtype))[..., 0, :] + self.vector
        return both[..., :-1], both[..., -1]

    def update(
        self, changed: Tensor, coefficients: tuple[Tensor, Tensor], key: Tensor, value: Tensor
    ) -> None:
        """Add the terms of alpha and beta [*heads, n] for the positions in U (Equation 6)."""
        dtype = self.matrix.dtype
        most = int(changed.sum(-1).max())
        if not most:
            return
        most += -most % TOGETHER
        # Positions of U in ascending order; the padding has coefficients 0.
        place = torch.argsort(~changed, dim=-1, stable=True)[..., :most]
        chosen = changed.gather(-1, place)
        slope, intercept = (
            torch.where(chosen, part.gather(-1, place), 0.0).to(dtype) for part in coefficients
        )
        keys, values = (self._rows(part, place).to(dtype) for part in (key, value))
        scaled = slope[..., None] * values
        matrix = scaled[..., None, :] * keys[..., :, None]
        vector = intercept[..., None] * values
        for first in range(0, place.shape[-1], TOGETHER):
            self.matrix += _three(matrix, first, -3)
            self.vector += _three(vector, first, -2)

    def rebuild(self, coefficients: tuple[Tensor, Tensor], key: Tensor, value: Tensor) -> None:
        """Sum a* and b* [*heads, n] over the first positions, and round once (Equation 5)."""
        slope, intercept = coefficients
        n = slope.shape[-1]
        keys, values = (_extended(part[:, :, None, :n]) for part in (key, value))
        self.matrix.copy_((keys * slope[..., None]).mT @ values)
        self.vector.copy_((intercept[..., None, :] @ values)[..., 0, :])

    def _rows(self, part: Tensor, place: Tensor) -> Tensor:
        """Return the keys or values of the positions in `place`, extended by 1."""
        lanes, kv_heads, group, most = place.shape
        size = part.shape[-1]
        index = place.reshape(lanes, kv_heads, group * most, 1).expand(-1, -1, -1, size)
        return _extended(part.gather(2, index).view(lanes, kv_heads, group, most, size))


def _extended(part: Tensor) -> Tensor:
    """Append 1 to each vector."""
    return torch.cat([part, part.new_ones(*part.shape[:-1], 1)], -1)


def _three(terms: Tensor, first: int, axis: int) -> Tensor:
    """Add three terms in the order of the adder tree."""
    zero, one, two = (terms.select(axis, first + number) for number in range(TOGETHER))
    return (zero + one) + two
