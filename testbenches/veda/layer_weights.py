"""Matrices of SmolLM2 for VEDA, as codes and as memory lines; hidden states and rotary angles."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import Trace, layers
from golden.llm.layers import LayerWeights
from golden.llm.model import SMOLLM2
from golden.veda.decoder_layer import folded, inner_matrix, output_matrix
from golden.veda.functions.element_serial_rotary import angles
from golden.veda.veda import Codes
from hdl.veda.parameters import VedaParameters


@lru_cache(maxsize=3)
def real_weights(p: VedaParameters, trace: Trace, layer: int) -> LayerWeights:
    """Return SmolLM2's matrices as VEDA's FP16 codes, cut or repeated to size.

    Biases are random, since SmolLM2 has none. Without a gate, `up_proj` is the only matrix.
    """
    weights = layers.real_weights(p, trace, layer)
    if p.biases:
        weights = with_biases(p, weights, layer)
    if not p.gated:
        weights = replace(weights, gate=weights.gate[:, :0])
    return folded(weights)


def with_biases(p: VedaParameters, weights: LayerWeights, seed: int) -> LayerWeights:
    """Return matrices with biases of the size of their outputs as their first rows."""
    rng = np.random.default_rng(seed)

    def extended(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        # For inputs with a root mean square of 1 the norm of a column is that of its output.
        size = np.linalg.norm(matrix, axis=0, keepdims=True)
        return np.concatenate([rng.normal(size=size.shape) * size, matrix])

    joined = replace(weights, output=weights.output.reshape(-1, p.hidden_size))
    return joined.mapped(extended)


def real_states(p: VedaParameters, trace: Trace, layer: int) -> Codes:
    """Return the hidden states before a layer, shape (tokens, hidden_size)."""
    states = trace.hidden(layer)[0]
    return codes(states[:, np.arange(p.hidden_size) % trace.hidden_size])


def weight_lines(p: VedaParameters, weights: LayerWeights) -> Codes:
    """Return a layer's matrices in the order in which they are read.

    Returns
    -------
    numpy.ndarray
        Shape (lines, channels, plane width).
    """
    projections = [
        _padded(matrix, rounds * p.lanes).reshape(p.row_lines, -1)
        for matrix, rounds in (
            (weights.key, p.kv_rounds),
            (weights.value, p.kv_rounds),
            (weights.query, p.rounds),
        )
    ]
    pair = [weights.gate, weights.up] if p.gated else [weights.up]
    gated = np.stack(pair, axis=-1).reshape(p.row_lines, -1)
    parts = [
        _outer_lines(p, np.concatenate(projections, axis=1)),
        _inner_lines(p, output_matrix(p, weights)),
        _outer_lines(p, gated),
        _inner_lines(p, inner_matrix(p, weights.down)),
    ]
    return np.concatenate(parts).reshape(-1, p.channels, p.array.plane_width)


def vocabulary_lines(p: VedaParameters, vocabulary: Codes) -> Codes:
    """Return the LM head, as in `WholeModel`, in the format of `weight_lines`."""
    missing = p.vocabulary_rows * p.row_elements - vocabulary.shape[1]
    padded = np.pad(vocabulary, ((0, 0), (0, missing)))
    return _outer_lines(p, padded).reshape(-1, p.channels, p.array.plane_width)


def angles_of(p: VedaParameters, position: int) -> tuple[Codes, Codes]:
    """Return a position's cosines and sines."""
    cosines, sines = angles(position + 1, p.head_size, SMOLLM2.rope_base)
    return cosines[position], sines[position]


def angle_lines(p: VedaParameters, position: int) -> Codes:
    """Return a position's angles as lines, shape (parts, plane width)."""
    return np.stack(angles_of(p, position), axis=-1).reshape(p.vector_lines, -1)


def _outer_lines(p: VedaParameters, matrix: Codes) -> Codes:
    """Return the lines of outer products: row by row, and within a row element by element."""
    return (
        matrix.reshape(p.row_lines, -1, p.row_elements).swapaxes(0, 1).reshape(-1, p.row_elements)
    )


def _inner_lines(p: VedaParameters, matrix: Codes) -> Codes:
    """Return the lines of inner products: by block of outputs, by slice, by output."""
    slices = matrix.reshape(-1, p.array.width, p.array_outputs, p.copies)
    block = p.array.partial_sums
    lines = []
    for first in range(0, p.array_outputs, block):
        # Axes: slice, output, array, element of the array.
        part = slices[:, :, first : first + block].transpose(0, 2, 3, 1)
        lines.append(part.reshape(-1, p.row_elements))
    return np.concatenate(lines)


def _padded(matrix: Codes, count: int) -> Codes:
    """Return a matrix of heads with heads of zeros appended."""
    return np.pad(matrix, ((0, 0), (0, count - matrix.shape[1]), (0, 0)))
