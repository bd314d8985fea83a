"""Expected deviation of VEDA's decoder layer from the truth of `golden.llm.layers`.

For LLaMA's layers only: `tests/veda/test_opt_layer.py` compares a layer of OPT with the library.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values as reals
from golden.llm import layers
from golden.llm.layers import LayerWeights
from golden.veda.functions.element_serial_softmax import LOG2_E
from golden.veda.veda import Codes
from hdl.model_shape import NORM_EPSILON
from hdl.veda.parameters import VedaParameters

Reals = NDArray[np.float64]

HALF = 2.0**-11
"""Relative error of rounding to FP16."""

SMALLEST = 2.0**-25
"""Absolute error of rounding to a subnormal FP16 number."""

STEEPEST = 1.1
"""An upper bound of the slope of SiLU."""

DEVIATIONS = 2
"""Maximum error of any element, in expected deviations."""


@dataclass(frozen=True, eq=False)
class Near:
    """Exact numbers, and the expected deviation of the hardware's results from them."""

    value: Reals
    off: Reals

    def rounded(self) -> "Near":
        """Return the numbers with the deviation after rounding to FP16."""
        return Near(self.value, root(self.off, abs(self.value) * HALF, SMALLEST))

    def plus(self, other: "Near") -> "Near":
        """Return the rounded sum."""
        return Near(self.value + other.value, root(self.off, other.off)).rounded()


def root(*parts: Reals | float) -> Reals:
    """Return the deviation that independent deviations cause together."""
    return np.sqrt(sum(np.square(part) for part in parts))


def exact_layer(
    p: VedaParameters,
    weights: LayerWeights,
    state: Codes,
    angles: tuple[Codes, Codes],
    past: tuple[Codes, Codes],
) -> tuple[Reals, Reals]:
    """Return the hidden state after a layer in float64, and the hardware's expected deviation.

    A worst-case bound would be useless: it assumes that all roundings of a row err in the same
    direction. Here each rounding error is assumed to be maximal and independent of all others, and
    each step propagates the deviation of its input. No element may deviate by more than
    `DEVIATIONS` expected deviations.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.
    weights : LayerWeights
        The layer's matrices; the FP16 codes are taken as exact.
    state : numpy.ndarray
        Hidden state before the layer, FP16 codes.
    angles : tuple
        Cosines and sines of the token's position, FP16 codes.
    past : tuple
        Cached keys and values, FP16 codes, shape (kv_heads, tokens, head_size), without those of
        this token.
    """
    here = Near(reals(state), np.zeros(len(state)))
    normalised = _norm(here)
    query, key, value = (
        _product(normalised, reals(matrix))
        for matrix in (weights.query, weights.key, weights.value)
    )
    query, key = (_turned(heads, *map(reals, angles)) for heads in (query, key))
    keys, values = (
        Near(
            np.concatenate([reals(old), new.value[:, np.newaxis]], axis=1),
            np.concatenate([np.zeros(old.shape), new.off[:, np.newaxis]], axis=1),
        )
        for old, new in zip(past, (key, value), strict=True)
    )
    heads = _attended(query, keys, values)
    here = here.plus(_product(heads, reals(weights.output).reshape(-1, p.hidden_size)))

    normalised = _norm(here)
    gate, up = (_product(normalised, reals(matrix)) for matrix in (weights.gate, weights.up))
    here = here.plus(_product(_activated(gate, up), reals(weights.down)))
    return here.value, here.off


def _norm(x: Near) -> Near:
    """Return x / sqrt(mean(x**2) + 1e-5); the unit's relative error is at most 2**-9."""
    exact = layers.rms_norm(x.value)
    off = x.off / np.sqrt(np.mean(x.value**2) + NORM_EPSILON)
    return Near(exact, root(off, abs(exact) * 2.0**-9, 2.0**-24))


def _product(vector: Near, matrix: Reals) -> Near:
    """Return vector times matrix; the rounding of sums in FP29 is negligible."""
    off = np.sqrt(np.tensordot(vector.off**2, matrix**2, 1))
    return Near(np.tensordot(vector.value, matrix, 1), off).rounded()


def _turned(heads: Near, cosines: Reals, sines: Reals) -> Near:
    """Return adjacent pairs rotated: two products and their sum, each rounded."""

    def pairs(first: Reals, second: Reals) -> Reals:
        return np.stack([first, second], axis=-1).reshape(heads.value.shape)

    off_x, off_y = (root(heads.off[:, n::2], heads.value[:, n::2] * HALF, SMALLEST) for n in (0, 1))
    exact = layers.rotated(heads.value, cosines, sines)
    off = pairs(root(off_x * cosines, off_y * sines), root(off_x * sines, off_y * cosines))
    return Near(exact, off).rounded()


def _attended(queries: Near, keys: Near, values: Near) -> Near:
    """Return the heads' outputs, concatenated."""
    # The queries include log2(e), for a softmax to the base 2.
    queries = Near(queries.value / LOG2_E, queries.off / LOG2_E)
    members = len(queries.value) // len(keys.value)
    keys, values = (
        Near(*(np.repeat(part, members, axis=0) for part in (of.value, of.off)))
        for of in (keys, values)
    )
    scores = np.einsum("hd,hld->hl", queries.value, keys.value)
    off_scores = root(
        np.sqrt(np.einsum("hd,hld->hl", queries.off**2, keys.value**2)),
        np.sqrt(np.einsum("hd,hld->hl", queries.value**2, keys.off**2)),
        scores * HALF,
        SMALLEST,
    )
    powers = layers.probabilities(queries.value, keys.value)
    exact = np.einsum("hl,hld->hd", powers, values.value)
    # An error of a score changes its own probability, and all others in common.
    common = np.sqrt(np.sum((powers * off_scores) ** 2, axis=1, keepdims=True))
    away = powers * root(off_scores, common, 2.0**-8) + 2.0**-24
    off = root(
        np.sqrt(np.einsum("hl,hld->hd", away**2, values.value**2)),
        np.sqrt(np.einsum("hl,hld->hd", powers**2, values.off**2)),
    )
    return Near(*(part.reshape(-1) for part in (exact, off))).rounded()


def _activated(gate: Near, up: Near) -> Near:
    """Return SiLU(gate) * up."""
    silu = layers.silu(gate.value)
    exact = silu * up.value
    off = root(STEEPEST * gate.off * up.value, silu * up.off, exact * 2.0**-8)
    tiny = 2.0**-24 * (1 + abs(up.value) * (1 + abs(gate.value)))
    return Near(exact, root(off, tiny))
