"""Matrices for VEDA: SmolLM2's, as codes and as lines of memory; hidden states and angles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm import Trace
from golden.llm.model import SMOLLM2
from golden.veda.decoder_layer import LayerWeights
from golden.veda.functions.element_serial_rotary import angles
from golden.veda.veda import Codes
from hdl.veda.parameters import VedaParameters
from testbenches.veda.functions.serial_bench import codes

Reals = NDArray[np.float64]


def real_weights(p: VedaParameters, trace: Trace, layer: int) -> LayerWeights:
    """Return SmolLM2's matrices, folded as `LayerWeights` says.

    Where the accelerator is smaller, the first elements and heads are taken, and matrices grow by
    the root of what is missing, so that what they make is as large; where it is larger, they are
    repeated.
    """
    size, theirs = p.head_size, trace.head_size
    # Neighbours turn together; in the model an element turns with the one half a head behind.
    half = np.arange(size // 2) % (theirs // 2)
    pairs = np.stack([half, half + theirs // 2], axis=-1).reshape(-1)
    plain = np.arange(size) % theirs

    def columns(heads: int, own: int, order: NDArray[Any]) -> NDArray[Any]:
        return ((np.arange(heads) % own)[:, np.newaxis] * theirs + order).reshape(-1)

    states = np.arange(p.hidden_size) % trace.width
    inner = np.arange(p.feed_forward_size) % SMOLLM2.feed_forward

    def matrix(name: str, rows: NDArray[Any], columns: NDArray[Any], norm: str = "") -> Reals:
        weight = trace.linear(layer, name).weight.astype(np.float64).T
        own = trace.norm(layer, norm).astype(np.float64)[:, np.newaxis] if norm else 1.0
        grown = np.sqrt(max(1.0, len(weight) / len(rows)))
        return (weight * own)[np.ix_(rows, columns)] * grown

    def heads(name: str, count: int, own: int, order: NDArray[Any]) -> Reals:
        weight = matrix(name, states, columns(count, own, order), "input")
        return weight.reshape(p.hidden_size, count, size)

    outputs = matrix("o_proj", columns(p.heads, trace.heads, plain), states)
    return LayerWeights(
        *(
            codes(weight)
            for weight in (
                heads("q_proj", p.heads, trace.heads, pairs) / np.sqrt(size),
                heads("k_proj", p.kv_heads, trace.kv_heads, pairs),
                heads("v_proj", p.kv_heads, trace.kv_heads, plain),
                outputs.reshape(p.heads, size, p.hidden_size),
                matrix("gate_proj", states, inner, "post_attention"),
                matrix("up_proj", states, inner, "post_attention"),
                matrix("down_proj", inner, states),
            )
        )
    )


def real_states(p: VedaParameters, trace: Trace, layer: int) -> Codes:
    """Return the hidden states before a layer, shape (tokens, hidden_size)."""
    states = trace.hidden(layer)[0]
    return codes(states[:, np.arange(p.hidden_size) % trace.width])


def weight_lines(p: VedaParameters, weights: LayerWeights) -> Codes:
    """Return a layer's matrices in the order in which they are read.

    Returns
    -------
    numpy.ndarray
        Shape (lines, channels, plane width).
    """
    projections = [
        _padded(matrix, rounds * p.lanes, axis=1).reshape(p.hidden_size, -1)
        for matrix, rounds in (
            (weights.key, p.kv_rounds),
            (weights.value, p.kv_rounds),
            (weights.query, p.rounds),
        )
    ]
    gated = np.stack([weights.gate, weights.up], axis=-1).reshape(p.hidden_size, -1)
    output = _padded(weights.output, p.rounds * p.lanes, axis=0).reshape(-1, p.hidden_size)
    parts = [
        _outer_lines(p, np.concatenate(projections, axis=1)),
        _inner_lines(p, output),
        _outer_lines(p, gated),
        _inner_lines(p, weights.down),
    ]
    return np.concatenate(parts).reshape(-1, p.channels, p.array.plane_width)


def angles_of(p: VedaParameters, position: int) -> tuple[Codes, Codes]:
    """Return a position's cosines and sines."""
    cosines, sines = angles(position + 1, p.head_size, SMOLLM2.rope_base)
    return cosines[position], sines[position]


def angle_lines(p: VedaParameters, position: int) -> Codes:
    """Return a position's angles as lines, shape (parts, plane width)."""
    return np.stack(angles_of(p, position), axis=-1).reshape(p.lines, -1)


def _outer_lines(p: VedaParameters, matrix: Codes) -> Codes:
    """Return a row of all arrays' columns after the other, each for all elements of the state."""
    return matrix.reshape(p.hidden_size, -1, p.row).swapaxes(0, 1).reshape(-1, p.row)


def _inner_lines(p: VedaParameters, matrix: Codes) -> Codes:
    """Return blocks of outputs, in each slice after slice, in each output after output."""
    slices = matrix.reshape(-1, p.array.width, p.sums, p.copies)
    block = p.array.partial_sums
    lines = []
    for first in range(0, p.sums, block):
        # Slice, output, array, element of the array.
        part = slices[:, :, first : first + block].transpose(0, 2, 3, 1)
        lines.append(part.reshape(-1, p.row))
    return np.concatenate(lines)


def _padded(matrix: Codes, count: int, *, axis: int) -> Codes:
    """Return a matrix with heads of zeros behind its own."""
    missing = [(0, count - matrix.shape[axis]) if n == axis else (0, 0) for n in range(matrix.ndim)]
    return np.pad(matrix, missing)
