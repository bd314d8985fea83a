"""Weights of 4 bits, activations of 8 bits, and the orthogonal basis used with them.

Section 7.2 and Table 6 of the paper, which uses QuaRot's rotations. Norms and residual sums are
invariant under a change of the orthogonal basis of the hidden state. In a basis in which every
direction contains all channels, no element is an outlier. The matrices absorb the change of basis,
so that nothing is rotated during decoding.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from golden.arith.int_symmetric import quantise
from golden.arith.requantiser import requantised
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

LOST = {
    # Q6.10 keeps four fraction bits: elements of a state in the basis rarely exceed 8.
    Operation.QUERY: 6,
    Operation.KEY: 6,
    Operation.VALUE: 6,
    Operation.UP: 6,
    Operation.GATE: 6,
    Operation.VOCABULARY: 6,
    # The others have quantisation steps of their own and use all 16 bits: the upper byte is kept.
    Operation.OUTPUT: 8,
    Operation.DOWN: 8,
    Operation.SCORE: 8,
    Operation.OWN: 8,
    Operation.ATTEND: 8,
}
"""Bits dropped from the vectors of each operation with 8-bit activations."""

CLIPS = np.linspace(0.5, 1.0, 26)
"""Fractions of a column's largest weight that are tried as the value of the largest integer."""


def lost(operation: Operation, p: KelleParameters) -> int:
    """Return the number of bits dropped from the vectors of an operation."""
    if operation is Operation.DOWN and not p.scaled_products:
        operation = Operation.UP
    return LOST[operation] if p.activation_bits == 8 else 0


def narrowed(vectors: Integers, operation: Operation, p: KelleParameters) -> Integers:
    """Return 16-bit vectors as operands of an operation, to nearest even, saturating."""
    top = 1 << p.activation_bits - 1
    return np.clip(requantised(vectors, 1, lost(operation, p)), -top, top - 1)


def turns(p: KelleParameters) -> bool:
    """Return whether a layer uses the orthogonal basis.

    It does with 4-bit weights or 8-bit activations, but not with layer norm, whose mean depends on
    the basis, or with biases.
    """
    return (p.weight_bits < 8 or p.activation_bits < 16) and not (p.layer_norm or p.biases)


@cache
def basis(size: int) -> Reals:
    """Return an orthogonal matrix [size, size] without large elements.

    It is the Kronecker product of a cosine transform and a Hadamard matrix of the largest power of
    two that divides `size`, with random signs, so that no direction is the mean of all channels.
    """
    power = size & -size
    hadamard = np.ones((1, 1))
    while len(hadamard) < power:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    rest = size // power
    places = np.arange(rest)
    cosines = np.cos(np.pi / rest * np.outer(places + 0.5, places)) * np.sqrt(2 / rest)
    cosines[:, 0] = np.sqrt(1 / rest)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size)
    return signs[:, np.newaxis] * np.kron(cosines, hadamard / np.sqrt(power))


def turned(states: Reals, p: KelleParameters) -> Reals:
    """Return hidden states [..., width] in the basis of the layers."""
    return states @ basis(p.hidden_size) if turns(p) else states


def turned_matrices(exact: dict[Operation, Reals], p: KelleParameters) -> dict[Operation, Reals]:
    """Return a layer's matrices [inputs, outputs] in the basis, which also applies to values."""
    if not turns(p):
        return exact
    of_state, of_head = basis(p.hidden_size), basis(p.head_size)
    found = {
        which: matrix @ of_state
        if which in (Operation.OUTPUT, Operation.DOWN)
        else of_state.T @ matrix
        for which, matrix in exact.items()
    }
    # Attention is a weighted mean of values: the output projection reverts the values' basis.
    values = found[Operation.VALUE].reshape(p.hidden_size, -1, p.head_size)
    heads = found[Operation.OUTPUT].reshape(-1, p.head_size, p.hidden_size)
    found[Operation.VALUE] = (values @ of_head).reshape(p.hidden_size, -1)
    found[Operation.OUTPUT] = (of_head.T @ heads).reshape(-1, p.hidden_size)
    return found


def quantised_weights(matrix: Reals, p: KelleParameters) -> tuple[Integers, Reals]:
    """Return a matrix [inputs, outputs] as integers, and the step of each output.

    With 4 bits, an output's step is the one of `CLIPS` with the smallest squared error.
    """
    if p.weight_bits == 8:
        weights, steps = quantise(matrix, axis=0)
        return weights.astype(np.int64), steps.reshape(-1).astype(np.float64)
    limit = (1 << p.weight_bits - 1) - 1
    whole = np.abs(matrix).max(axis=0) / limit
    whole[whole == 0] = 1.0
    best, least = whole, np.full(matrix.shape[1], np.inf)
    for clip in CLIPS:
        steps = whole * clip
        error = np.square(_integers(matrix, steps, limit) * steps - matrix).sum(axis=0)
        best, least = np.where(error < least, steps, best), np.minimum(error, least)
    return _integers(matrix, best, limit), best


def _integers(matrix: Reals, steps: Reals, limit: int) -> Integers:
    """Return the integers of a matrix for given steps, to nearest, clipped."""
    return np.clip(np.rint(matrix / steps), -limit, limit).astype(np.int64)
