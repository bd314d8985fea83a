"""Hadamard matrices: orthogonal bases in which every direction has equal shares of all channels."""

import numpy as np
from numpy.typing import NDArray

PRIME = 11
"""Paley's construction from the residues modulo 11 gives the matrix of size 12."""


def hadamard(size: int) -> NDArray[np.float64]:
    """Return an orthogonal matrix [size, size] whose elements are all +-1 / sqrt(size).

    It is a Kronecker product of matrices of sizes 12 and 2.

    Raises
    ------
    ValueError
        If `size` is not a product of twelves and twos.
    """
    twelves, rest = 0, size
    while rest > 0 and rest % 12 == 0:
        twelves, rest = twelves + 1, rest // 12
    if rest < 1 or rest & (rest - 1):
        raise ValueError(f"the size of a Hadamard matrix must be 12**n * 2**m, not {size}")
    matrix = np.ones((1, 1))
    for factor in [_paley()] * twelves + [_two()] * (rest.bit_length() - 1):
        matrix = np.kron(matrix, factor)
    return matrix / np.sqrt(size)


def _two() -> NDArray[np.float64]:
    return np.array([[1.0, 1.0], [1.0, -1.0]])


def _paley() -> NDArray[np.float64]:
    """Return Paley's first matrix of size 12: I + S, where S is skew and has zeros and +-1."""
    squares = {number * number % PRIME for number in range(1, PRIME)}
    numbers = np.arange(PRIME)
    difference = (numbers[:, np.newaxis] - numbers) % PRIME
    signs = np.where(np.isin(difference, [*squares]), 1.0, -1.0)
    skew = np.zeros((PRIME + 1, PRIME + 1))
    skew[0, 1:], skew[1:, 0] = 1.0, -1.0
    skew[1:, 1:] = np.where(difference == 0, 0.0, signs)
    return np.eye(PRIME + 1) + skew
