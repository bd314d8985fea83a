"""Bit-exact model of a decode step through one decoder layer, and through the LM head.

A layer maps a hidden state to a hidden state, the LM head a hidden state to a token.

The memory multiplies the bytes of its columns by 8-bit inputs, in exact integers. The NPU's
functions are units of `hdl.nonlinear`, quantisers, or sequences of float32 operations, each rounded
to nearest: conversion of an integer, product, sum, conversion to FP16.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from golden.arith import bitmod_fp4
from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.float_values import codes, values
from golden.nonlinear.activation_functions import activation
from golden.nonlinear.argmax import argmax
from golden.nonlinear.rms_norm import rms_norm
from golden.nonlinear.rotary_embedding import rotate
from golden.nonlinear.row_norm import quantise_weights
from golden.nonlinear.softmax import softmax
from golden.p3llm.dram_layout import PE_LANES, pack_columns, unpack_columns
from golden.p3llm.npu.block_fixed import block_fixed
from golden.p3llm.npu.epsilon_steps import epsilon_steps
from golden.p3llm.npu.key_reader import dequantised
from golden.p3llm.npu.query_key_score import query_key_score
from golden.p3llm.pim.operand_decoder import real
from golden.p3llm.pim.pim_processing_element import dot_products
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.p3llm.quantisers.key_smoothing import fused_queries, smoothed_keys, smoothing_factors
from golden.p3llm.quantisers.probability_quantiser import probability_quantiser
from golden.p3llm.quantisers.value_scaling import value_scaling
from hdl.arith.float_format import BINARY32
from hdl.nonlinear.activation_functions import Function
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode

Bytes = NDArray[np.uint8]
Halves = NDArray[np.uint16]
Singles = NDArray[np.float32]
FRACTION = 10
"""Fraction bits of Q6.10."""

STEP = 1 << FRACTION
"""Steps of 1 in Q6.10."""


TILES = 256
"""Tiles of a matrix that are multiplied at once; whole matrices would not fit in memory."""


def fitting_group(inputs: int, group: int) -> int:
    """Return the weights per group, halved until the groups divide the inputs."""
    while inputs % group:
        group //= 2
    return group


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """Stored weights of a linear layer.

    A weight is a BitMoD weight, or the sum of two that are multiplied by the same input. The
    columns and groups of the second ones follow those of the first ones of the same output.

    Members
    -------
    columns : numpy.ndarray
        Bytes of the DRAM columns, shape (tiles, columns, bytes).
    selects : numpy.ndarray
        Selects of the special values, shape (outputs, groups).
    steps : numpy.ndarray
        8-bit group scales, shape (outputs, groups).
    scales : numpy.ndarray
        FP16 row scales, shape (outputs,).
    """

    columns: Bytes
    selects: Bytes
    steps: Bytes
    scales: Halves

    @classmethod
    def quantised(
        cls,
        weights: NDArray[np.floating],
        group: int,
        *,
        elements: int = 16,
        passes: int = 1,
        importance: NDArray[np.float64] | None = None,
    ) -> "Matrix":
        """Quantise a matrix, shape (outputs, inputs), for columns of `elements` elements.

        With the mean square of each input as `importance`, groups have the smallest error weighted
        with it; without, they are rounded as the paper specifies. With two `passes`, each weight is
        the sum of two stored ones, of which the second is the error of the first.
        """
        group = fitting_group(weights.shape[1], group)

        def groups_of(some: NDArray[np.floating]) -> bitmod_fp4.BitmodFp4:
            if importance is None:
                return bitmod_fp4.quantise(some, group_size=group)
            return bitmod_fp4.quantise_weighted(some, importance, group_size=group)

        groups = groups_of(weights)
        steps, rows = bitmod_fp4.quantise_scales(groups.scales)
        scales = codes(rows[:, 0])
        parts = [(groups.codes, groups.selects, steps)]
        if passes > 1:
            row = values(scales).astype(np.float32)[:, np.newaxis]
            stored = replace(groups, scales=steps * row).values().reshape(weights.shape)
            errors = weights - stored
            parts.append(_error_groups(groups_of(errors), errors, row))
        stored_codes, selects, steps = (
            np.concatenate(part, axis=1) for part in zip(*parts, strict=True)
        )
        return cls(
            columns=pack_columns(stored_codes.reshape(len(weights), -1), elements=elements),
            selects=selects,
            steps=steps,
            scales=scales,
        )

    def product(self, state: Halves) -> Singles:
        """Return the layer's outputs for an FP16 vector, in float32.

        Group sums are integers, and so is their total with the 8-bit scales: less than 2**48.
        """
        inputs, scale = e4m3_quantiser(state)
        total = self.sums(inputs)
        # Both scales have eleven digits: their product is exact in float32.
        scales = values(scale).astype(np.float32) * values(self.scales).astype(np.float32)
        single: Singles = real(Mode.LINEAR, total).astype(np.float32)
        return np.multiply(single, scales, dtype=np.float32)

    def sums(self, inputs: Bytes) -> NDArray[np.int64]:
        """Return the integer sums of all outputs for E4M3 codes."""
        # Both weights of a sum have the same input.
        passes = self.columns.shape[1] * PE_LANES // len(inputs)
        inputs = np.tile(inputs, passes)
        return np.concatenate(
            [self._totals(first, inputs) for first in range(0, len(self.columns), TILES)]
        )

    def _totals(self, first: int, inputs: Bytes) -> NDArray[np.int64]:
        """Return the sums of group sums times scales, for `TILES` tiles from `first`."""
        columns = self.columns[first : first + TILES]
        elements = columns.shape[-1] * 2 // PE_LANES
        rows = slice(first * elements, (first + TILES) * elements)
        selects, steps = self.selects[rows], self.steps[rows]
        outputs, groups = selects.shape
        weights = unpack_columns(columns, outputs=outputs, terms=len(inputs))
        shape = (outputs, groups, -1)
        sums = dot_products(
            np.array(Mode.LINEAR.value),
            np.broadcast_to(inputs.reshape(1, groups, -1), weights.reshape(shape).shape),
            weights.reshape(shape),
            selects[..., np.newaxis],
        )
        totals: NDArray[np.int64] = (sums * steps).sum(axis=1)
        return totals


def _error_groups(
    groups: bitmod_fp4.BitmodFp4, errors: NDArray[np.floating], row: Singles
) -> tuple[Bytes, Bytes, Bytes]:
    """Return codes, selects and 8-bit scales of a matrix's errors, for given row scales.

    These scales are some tenths of the weights' own. Codes are therefore chosen again for the
    rounded scale, and no scale is rounded to 0.
    """
    unit = groups.scales / np.where(row == 0, np.float32(1), row)
    steps = np.clip(np.rint(unit), 1, 255).astype(np.uint8)
    grouped = errors.reshape(groups.codes.shape)
    return bitmod_fp4.nearest_codes(grouped, groups.selects, steps * row), groups.selects, steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Weights of a layer: its matrices, and its norms' weights in float.

    Matrices with the same inputs are stored as one: keys, values and queries; `gate_proj` and
    `up_proj`.
    """

    qkv: Matrix
    output: Matrix
    gate_up: Matrix
    down: Matrix
    norms: tuple[NDArray[np.floating], NDArray[np.floating]]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The final norm's weights in float, and the LM head.

    Outputs after the last token, which fill up a slice, repeat the first token: their logits are
    equal, and ties resolve to the lowest token.
    """

    norm: NDArray[np.floating]
    matrix: Matrix

    @classmethod
    def quantised(
        cls,
        norm: NDArray[np.floating],
        weights: NDArray[np.floating],
        p: P3llmParameters,
        importance: NDArray[np.float64] | None = None,
    ) -> "Vocabulary":
        """Quantise an LM head, shape (vocabulary, width); `importance` as in `Matrix`."""
        missing = p.filled_vocabulary - len(weights)
        filled = np.concatenate([weights, np.repeat(weights[:1], missing, axis=0)])
        matrix = Matrix.quantised(
            filled,
            p.group_weights,
            elements=p.elements,
            passes=p.vocabulary_passes,
            importance=importance,
        )
        return cls(norm, matrix)

    def predicted(self, state: Singles, p: P3llmParameters) -> tuple[int, int]:
        """Return the token that follows a hidden state, and the code of its logit."""
        sums = self.matrix.product(normed(state, self.norm, p))[: p.vocabulary_size]
        return argmax(BINARY32, sums.view(np.uint32))


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache:
    """Stored keys and values of a layer, and the smoothing factors.

    Members
    -------
    keys, values : numpy.ndarray
        4-bit codes, shape (kv_heads, tokens, head_size).
    key_zeros, value_zeros : numpy.ndarray
        Zero points, shape (kv_heads, tokens).
    key_scales, value_scales : numpy.ndarray
        FP16 scales, shape (kv_heads, tokens).
    factors : numpy.ndarray
        FP16 smoothing factors, shape (kv_heads, 1, head_size).
    """

    keys: Bytes
    values: Bytes
    key_zeros: Bytes
    value_zeros: Bytes
    key_scales: Halves
    value_scales: Halves
    factors: Halves

    @classmethod
    def of_prompt(cls, keys: Halves, vectors: Halves) -> "Cache":
        """Quantise a prompt's keys and values, FP16, shape (kv_heads, tokens, size).

        Keys are those after the rotary embedding, or with `pre_rope` those before it.
        """
        factors = smoothing_factors(keys)
        return cls._quantised(smoothed_keys(keys, factors), vectors, factors)

    @classmethod
    def empty(cls, factors: Halves) -> "Cache":
        """Return a cache without tokens."""
        none = np.zeros((len(factors), 0, factors.shape[-1]), np.uint16)
        return cls._quantised(none, none, factors)

    def appended(self, key: Halves, vector: Halves) -> "Cache":
        """Return the cache with one more token, FP16, shape (kv_heads, size)."""
        return self.extended(key[:, np.newaxis], vector[:, np.newaxis])

    def extended(self, keys: Halves, vectors: Halves) -> "Cache":
        """Return the cache with more tokens, FP16, shape (kv_heads, tokens, size)."""
        more = self._quantised(smoothed_keys(keys, self.factors), vectors, self.factors)
        parts = {
            name: np.concatenate([getattr(self, name), getattr(more, name)], axis=1)
            for name in vars(self)
            if name != "factors"
        }
        return Cache(**parts, factors=self.factors)

    @classmethod
    def _quantised(cls, keys: Halves, vectors: Halves, factors: Halves) -> "Cache":
        key_codes, key_zeros, key_scales = int4_quantiser(keys)
        value_codes, value_zeros, value_scales = int4_quantiser(vectors)
        return cls(
            keys=key_codes,
            values=value_codes,
            key_zeros=key_zeros[..., 0],
            value_zeros=value_zeros[..., 0],
            key_scales=key_scales[..., 0],
            value_scales=value_scales[..., 0],
            factors=factors,
        )


def decode(
    weights: Weights, cache: Cache, state: Singles, position: int, p: P3llmParameters
) -> tuple[Singles, Cache]:
    """Return the hidden state after a layer, float32, and the cache including the token.

    Parameters
    ----------
    weights : Weights
        Weights of the layer; rows of queries and keys are ordered so that rotated pairs are
        adjacent.
    cache : Cache
        Cache of the previous tokens.
    state : numpy.ndarray
        Hidden state, shape (width,).
    position : int
        Position of the token.
    p : P3llmParameters
        Parameters of the system.
    """
    here = normed(state, weights.norms[0], p)

    projected = weights.qkv.product(here).reshape(-1, p.head_size)
    keys, vectors, queries = np.split(projected, [p.kv_heads, 2 * p.kv_heads])
    cache = cache.appended(cached_keys(keys, position, p), codes(vectors))
    attended = attention(rotated(queries, position, p), cache, p)
    state = state + weights.output.product(codes(attended.reshape(-1)))
    here = normed(state, weights.norms[1], p)
    gate, up = np.split(weights.gate_up.product(here), 2)
    inner = silu(gate, p) * up
    return state + weights.down.product(codes(inner)), cache


def normed(state: Singles, weight: NDArray[np.floating], p: P3llmParameters) -> Halves:
    """Return a hidden state divided by its root mean square, weighted, in FP16."""
    raw, point = block_fixed(state[np.newaxis])
    epsilon = epsilon_steps(p.hidden_size, point)
    weighted = rms_norm(raw, epsilon, quantise_weights(weight, p.norm), p.norm)[0]
    return codes(weighted / STEP)


def rotated(heads: Singles, position: int | NDArray[np.int64], p: P3llmParameters) -> Halves:
    """Return heads rotated by a position, or each by its own, in FP16.

    Each head is scaled by its own power of two.
    """
    # One bit is kept free: a rotation can increase an element by the square root of two.
    raw, point = block_fixed(heads, spare=1)
    turned = rotate(raw, np.broadcast_to(position, len(heads)), p.rotary)
    return codes(np.ldexp(turned.astype(np.float64), -point[:, np.newaxis]))


def cached_keys(heads: Singles, position: int | NDArray[np.int64], p: P3llmParameters) -> Halves:
    """Return the keys to be quantised, in FP16: rotated, unless `pre_rope` is set."""
    return codes(heads) if p.pre_rope else rotated(heads, position, p)


def turned_keys(cache: Cache, p: P3llmParameters) -> Halves:
    """Return all cached keys, rotated by their positions, FP16 (kv_heads, tokens, size)."""
    keys = dequantised(cache.keys, cache.key_zeros, cache.key_scales, cache.factors)
    tokens = np.tile(np.arange(keys.shape[1]), len(keys))
    return rotated(keys.reshape(-1, p.head_size), tokens, p).reshape(keys.shape)


def attention(queries: Halves, cache: Cache, p: P3llmParameters) -> Singles:
    """Return the heads' outputs, float32, shape (heads, head_size)."""
    group, tokens = p.heads // p.kv_heads, cache.keys.shape[1]
    turned = turned_keys(cache, p) if p.pre_rope else None
    results = []
    for head, query in enumerate(queries):
        kv = head // group
        if turned is not None:
            scores = query_key_score(query, turned[kv], p)
        else:
            scores = integer_scores(query, cache, kv, p)
        shares = shared(scores, p)
        fused, largest = value_scaling(cache.value_scales[kv], shares)
        inputs = probability_quantiser(fused, p.probabilities)
        vectors = unpack_columns(
            pack_columns(cache.values[kv].T), outputs=p.head_size, terms=tokens
        )
        sums = dot_products(
            np.array(Mode.PV.value),
            np.broadcast_to(inputs, vectors.shape),
            vectors,
            cache.value_zeros[kv],
        )
        single = real(Mode.PV, sums).astype(np.float32)
        results.append(single * values(largest).astype(np.float32))
    return np.stack(results)


def integer_scores(query: Halves, cache: Cache, kv: int, p: P3llmParameters) -> Singles:
    """Return scores of a query and the INT4 keys of a head, float32.

    A score is in base 2: scale of the query times ``log2(e) / sqrt(size)``, times the token's
    scale, times the sum, in this order.
    """
    inputs, scale = e4m3_quantiser(fused_queries(query, cache.factors[kv, 0]))
    tokens = cache.keys.shape[1]
    keys = unpack_columns(pack_columns(cache.keys[kv]), outputs=tokens, terms=p.head_size)
    sums = dot_products(
        np.array(Mode.QK.value),
        np.broadcast_to(inputs, keys.shape),
        keys,
        cache.key_zeros[kv][:, np.newaxis],
    )
    constant = np.float32(np.log2(np.e) / np.sqrt(p.head_size))
    factor = values(scale).astype(np.float32) * constant
    single: Singles = real(Mode.QK, sums).astype(np.float32)
    scales = values(cache.key_scales[kv]).astype(np.float32) * factor
    return np.multiply(single, scales, dtype=np.float32)


def shared(scores: Singles, p: P3llmParameters) -> Halves:
    """Return probabilities of scores in base 2, in FP16.

    Tokens that fill up the last slice are masked.
    """
    raw = float_to_fixed(scores, FRACTION)
    # The last slice is at least a column of values, four tokens.
    beyond = -len(raw) % max(p.lanes, PE_LANES)
    keep = np.pad(np.ones((1, len(raw)), bool), [(0, 0), (0, beyond)])
    shares = softmax(np.pad(raw, (0, beyond))[np.newaxis], keep, p.softmax)
    return codes(np.ldexp(shares[0, : len(raw)].astype(np.float64), -16))


def silu(gates: Singles, p: P3llmParameters) -> Singles:
    """Return SiLU of gates in Q6.10, as float32."""
    raw = float_to_fixed(gates, FRACTION)
    return (activation(raw, Function.SILU.value, p.activation) / STEP).astype(np.float32)
