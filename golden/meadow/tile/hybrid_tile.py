"""Attention and linear layers: references in float64, and the bit-exact model of the tile."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import requantised, scale_and_shift
from golden.meadow.tile.pipelined_softmax import exponential_table, softmax
from golden.meadow.tile.requantisation import Integers, quantised, tile_factor, to_int8
from golden.nonlinear import rotary_embedding
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT, BIAS, HALVES, TileParameters

Reals = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionBlock:
    """A block of attention in integers, and the real values of their steps.

    Members
    -------
    tokens : numpy.ndarray
        INT8, shape (tokens, hidden_size).
    query : numpy.ndarray
        INT8 query weights, shape (heads, hidden_size, size); the outputs of a rotary pair are
        neighbours.
    keys, values : numpy.ndarray
        INT8, shape (kv_heads, context, size).
    causal, skip : bool
        As in a command.
    factors : tuple
        Scale and shift of queries, scores and outputs; that of queries may be [heads, 2].
    table : numpy.ndarray
        Exponential of each distance, shape (256,).
    steps : dict[str, float]
        Real value of one step of tokens, query weights, keys, values, scores and outputs.
    bias : numpy.ndarray, optional
        Biases of the queries in steps of their sums, shape (heads, size).
    exponents : numpy.ndarray, optional
        Exponent of each token; biases have the steps of `BASE_EXPONENT`.
    """

    tokens: Integers
    query: Integers
    keys: Integers
    values: Integers
    causal: bool
    skip: bool
    factors: tuple[tuple[int, int] | Integers, ...]
    table: Integers
    steps: dict[str, float]
    bias: Integers | None = None
    exponents: Integers | None = None

    def gemm_steps(self, p: TileParameters) -> int:
        """Return the cycles to compute a group's queries."""
        return self.query.shape[1] // p.slices // HALVES

    @property
    def context(self) -> int:
        """Keys of a head."""
        return self.keys.shape[1]

    @property
    def positions(self) -> Integers:
        """The tokens' positions, which are the last of the context."""
        return np.arange(self.context - len(self.tokens), self.context)

    @property
    def seen(self) -> Integers:
        """1 for each key that a token attends to, shape (tokens, context)."""
        every = np.ones((len(self.tokens), self.context), np.int64)
        return (
            every * (np.arange(self.context) <= self.positions[:, np.newaxis])
            if (self.causal)
            else every
        )

    @property
    def members(self) -> int:
        """Query heads that share keys and values."""
        return len(self.query) // len(self.keys)

    def skipped(self, skip: bool) -> "AttentionBlock":
        """Return the same block with another value of `skip`."""
        return replace(self, skip=skip)


def block_of(
    tokens: Reals,
    query: Reals,
    keys: Reals,
    values: Reals,
    p: TileParameters,
    *,
    causal: bool = True,
    skip: bool = False,
    bias: Reals | None = None,
) -> AttentionBlock:
    """Quantise tensors to INT8 with one scale each, and choose the scales between the stages.

    Shapes are those of `AttentionBlock`; the keys must be rotated already.
    """
    integers = [quantised(tensor) for tensor in (tokens, query, keys, values)]
    (x, x_step), (w, w_step), (k, k_step), (v, v_step) = integers
    block = AttentionBlock(
        tokens=x,
        query=w,
        keys=k,
        values=v,
        causal=causal,
        skip=skip,
        factors=((1, 0),) * 3,
        table=np.zeros(256, np.int64),
        steps={"tokens": x_step, "query": w_step, "keys": k_step, "values": v_step},
        bias=None if bias is None else bias_of(bias, x_step * w_step),
    )
    wide = wide_queries(block, p)
    q_step = float(np.abs(wide).max()) / 127 or 1.0
    narrow = np.clip(np.rint(wide / q_step), -128, 127)
    scores = np.matmul(narrow, _shared(k, block).swapaxes(1, 2).astype(np.float64))
    unit = x_step * w_step * q_step * k_step / np.sqrt(p.size)
    # Masked scores may saturate.
    most = float(np.abs(np.where(block.seen, scores, 0)).max()) or 1.0
    factors = tuple(
        scale_and_shift(factor) for factor in (1 / q_step, 127 / most, 2.0**-p.probability_bits)
    )
    steps = block.steps | {"scores": unit * most / 127, "outputs": v_step}
    table = exponential_table(steps["scores"])
    return replace(block, factors=factors, table=table, steps=steps)


def bias_of(bias: Reals, step: float) -> Integers:
    """Return biases in steps of the sums, clamped to the accelerator's 24 bits."""
    most = 1 << BIAS.width - 1
    return np.clip(np.rint(bias / step), -most, most - 1).astype(np.int64)


def _shared(parts: Integers, block: AttentionBlock) -> Integers:
    """Return keys or values for every query head."""
    return np.repeat(parts, block.members, axis=0)


def wide_queries(block: AttentionBlock, p: TileParameters) -> Integers:
    """Return queries as sums, rotated, shape (heads, tokens, size)."""
    layer = LinearBlock(
        tokens=block.tokens,
        weights=block.query,
        context=block.context,
        rotate=p.rotary,
        factor=block.factors[0],
        bias=block.bias,
        exponents=block.exponents,
    )
    return wide_linear(layer, p)


@dataclass(frozen=True, eq=False)
class AttentionStages:
    """Results of the stages of attention.

    Members
    -------
    queries : numpy.ndarray
        INT8, rotated, shape (heads, tokens, size).
    scores : numpy.ndarray
        INT8, shape (heads, tokens, context).
    probabilities : numpy.ndarray
        In steps of ``2**-probability_bits``, shape (heads, tokens, context).
    outputs : numpy.ndarray
        INT8, with token exponents 16 bits, shape (heads, tokens, size).
    """

    queries: Integers
    scores: Integers
    probabilities: Integers
    outputs: Integers


def attention_stages(block: AttentionBlock, p: TileParameters) -> AttentionStages:
    """Return the results of every stage for a block."""
    queries = to_int8(wide_queries(block, p), *tile_factor(block.factors[0], block.exponents))
    keys, values = _shared(block.keys, block), _shared(block.values, block)
    scores = to_int8(np.matmul(queries, keys.swapaxes(1, 2)), *tile_factor(block.factors[1]))
    keep = np.broadcast_to(block.seen, scores.shape)
    shares = softmax(scores, keep, block.table, p.softmax)
    # The exponent of a token's outputs depends on all heads, so that it is applied later.
    exit_stage = requantised if p.token_exponents else to_int8
    outputs = exit_stage(np.matmul(shares, values), *tile_factor(block.factors[2]))
    return AttentionStages(queries, scores, shares, outputs)


def attend(block: AttentionBlock, p: TileParameters) -> Integers:
    """Return the outputs of all heads as in `AttentionStages`."""
    return attention_stages(block, p).outputs


def exact_attention(
    tokens: Reals,
    query: Reals,
    keys: Reals,
    values: Reals,
    p: TileParameters,
    seen: Integers,
    bias: Reals | None = None,
) -> Reals:
    """Return the head outputs in float64, shape (heads, tokens, size)."""
    members = len(query) // len(keys)
    queries = np.matmul(tokens, query) + (0 if bias is None else bias[:, np.newaxis])
    if p.rotary:
        positions = np.arange(seen.shape[1] - len(tokens), seen.shape[1])
        queries = np.stack(
            [rotary_embedding.exact_rotation(head, positions, p.rotation) for head in queries]
        )
    keys, values = (np.repeat(part, members, axis=0) for part in (keys, values))
    scores = np.matmul(queries, keys.swapaxes(1, 2)) / np.sqrt(p.size)
    scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.matmul(powers / powers.sum(axis=-1, keepdims=True), values)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBlock:
    """A linear layer in GEMM mode.

    Members
    -------
    tokens : numpy.ndarray
        INT8, shape (tokens, elements).
    weights : numpy.ndarray
        INT8, shape (tiles, elements, size): outputs in tiles of a head's size.
    context : int
        Position after the last token's.
    rotate : bool
        Whether the outputs are rotated by the tokens' positions.
    factor : tuple[int, int] or numpy.ndarray
        Scale and shift of the outputs, of all tiles or [tiles, 2].
    wide : bool
        Whether the outputs have 16 bits instead of 8.
    bias : numpy.ndarray, optional
        Biases in steps of the sums, shape (tiles, size).
    exponents : numpy.ndarray, optional
        Exponent of each token; biases have the steps of `BASE_EXPONENT`.
    """

    tokens: Integers
    weights: Integers
    context: int
    rotate: bool
    factor: tuple[int, int] | Integers
    wide: bool = False
    bias: Integers | None = None
    exponents: Integers | None = None


def linear_of(
    tokens: Integers,
    weights: Integers,
    p: TileParameters,
    *,
    context: int,
    rotate: bool,
    wide: bool = False,
    bias: Integers | None = None,
) -> LinearBlock:
    """Return a linear layer whose outputs use the whole range of INT8, or of 16 bits."""
    block = LinearBlock(
        tokens=tokens,
        weights=weights,
        context=context,
        rotate=rotate,
        factor=(1, 0),
        wide=wide,
        bias=bias,
    )
    most = int(np.abs(wide_linear(block, p)).max()) or 1
    return replace(block, factor=scale_and_shift((32767 if wide else 127) / most))


def exact_products(tokens: Integers, weights: Integers) -> Integers:
    """Return the product of two INT8 matrices.

    Products of four rows or more use float64, which is faster and exact for these sums.
    """
    if len(tokens) < 4:
        return np.matmul(tokens, weights, dtype=np.int64)
    return np.matmul(tokens.astype(np.float64), weights.astype(np.float64)).astype(np.int64)


def wide_linear(block: LinearBlock, p: TileParameters) -> Integers:
    """Return a linear layer's outputs as sums, shape (tiles, tokens, size)."""
    sums = exact_products(block.tokens, block.weights)
    if block.bias is not None:
        sums = sums + shifted_bias(block.bias[:, np.newaxis], block.exponents)
    if not block.rotate:
        return sums
    positions = np.arange(block.context - len(block.tokens), block.context)
    return np.stack(
        [rotary_embedding.rotate(tile, positions, p.rotation, width=p.gemm_bits) for tile in sums]
    )


def shifted_bias(bias: Integers, exponents: Integers | None) -> Integers:
    """Return biases [..., 1 or tokens, size] in the steps of each token's sums, rounded down."""
    if exponents is None:
        return bias
    return bias << exponents[:, np.newaxis] >> BASE_EXPONENT


def linear(block: LinearBlock, p: TileParameters) -> Integers:
    """Return a linear layer's outputs, shape (tiles, tokens, size)."""
    exit_stage = requantised if block.wide else to_int8
    return exit_stage(wide_linear(block, p), *tile_factor(block.factor, block.exponents))


def weight_words(query: Integers, p: TileParameters) -> Integers:
    """Return a head's query weights [hidden_size, size] in the order of the tile's port.

    The order is by pairs of outputs, words of a slice, halves and slices, shape (words, size).
    """
    parts = query.reshape(-1, p.slices, p.size, p.size // HALVES, HALVES)
    return parts.transpose(3, 0, 4, 1, 2).reshape(-1, p.size)


def tile_of(words: Integers, p: TileParameters) -> Integers:
    """Return the weights [elements, size] of words: the inverse of `weight_words`."""
    pairs = words.reshape(p.size // HALVES, -1, HALVES, p.slices, p.size)
    return pairs.transpose(1, 3, 4, 0, 2).reshape(-1, p.size)


def row_words(rows: Integers, p: TileParameters) -> Integers:
    """Return rows [heads, tokens, elements] in the order of the tile's port.

    The order is by heads, groups of tokens, words of a row and tokens of a group, shape (words,
    size); zeros pad the last word of a row.
    """
    heads, tokens, elements = rows.shape
    words = np.pad(rows, ((0, 0), (0, 0), (0, -elements % p.size)))
    words = words.reshape(heads, tokens, -1, p.size).swapaxes(1, 2)
    groups = (words[:, :, first : first + p.lanes] for first in range(0, tokens, p.lanes))
    in_turn = np.concatenate([group.reshape(heads, -1, p.size) for group in groups], axis=1)
    return in_turn.reshape(-1, p.size)


def slot_cycles(block: AttentionBlock, p: TileParameters) -> int:
    """Return the cycles of all groups by their longest stage, plus three groups of filling."""
    firsts = np.arange(0, len(block.tokens), p.lanes)
    reach = block.context - len(block.tokens) + firsts + p.lanes
    skips = block.causal and block.skip
    features = np.minimum(reach, block.context) if skips else np.full(len(firsts), block.context)
    slots = np.maximum(features, block.gemm_steps(p))
    return int(len(block.query) * slots.sum() + 3 * slots[-1])
