"""Bit-exact model of VEDA's decoder layer, composed of the units' models.

With `biases`, each matrix has its biases as its first row, and the input of a row of outer products
begins with a 1.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from golden.arith.float_add import float_add
from golden.arith.float_convert import float_convert
from golden.arith.float_values import ONE, codes
from golden.llm.layers import LayerWeights
from golden.veda.array.flexible_pe_array import inner_products, outer_product
from golden.veda.functions.element_serial_activation import activation
from golden.veda.functions.element_serial_layernorm import layernorm
from golden.veda.functions.element_serial_rotary import rotary
from golden.veda.functions.element_serial_softmax import LOG2_E
from golden.veda.veda import Codes, LayerModel, Step
from hdl.arith.float_format import BINARY16
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.parameters import VedaParameters


def folded(weights: LayerWeights) -> LayerWeights:
    """Return a layer's matrices as FP16 codes, with log2(e) folded into the queries'."""
    return replace(weights, query=weights.query * LOG2_E).mapped(codes)


@dataclass(frozen=True, eq=False)
class LayerResult:
    """Results of a token in a layer.

    Members
    -------
    state : numpy.ndarray
        The hidden state after the layer, FP16 codes.
    attention : Step
        The attention of the layer.
    """

    state: Codes
    attention: Step


@dataclass(eq=False)
class DecoderLayer:
    """A layer's matrices and its cache.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.
    weights : LayerWeights
        The layer's matrices, as the FP16 codes that `folded` returns. With biases the heads of
        `output` are joined, so that its shape is (1 + heads * head_size, hidden_size). Without a
        gate `gate` has no columns.

    Members
    -------
    cache : LayerModel
        The layer's keys, values, votes and slots.
    """

    parameters: VedaParameters
    weights: LayerWeights
    cache: LayerModel = field(init=False)

    def __post_init__(self) -> None:
        """Start with an empty cache."""
        self.cache = LayerModel(self.parameters)

    def step(
        self,
        state: Codes,
        cosines: Codes,
        sines: Codes,
        *,
        vote: bool = False,
        evictions: int = 0,
    ) -> LayerResult:
        """Execute the layer for one token.

        Parameters
        ----------
        state : numpy.ndarray
            The hidden state before the layer, FP16 codes.
        cosines, sines : numpy.ndarray
            Rotary angles of the token's position, FP16 codes, shape (head_size / 2,).
        vote : bool
            Whether the token votes.
        evictions : int
            As in `LayerModel.attend`.
        """
        p, weights, array = self.parameters, self.weights, self.parameters.array
        normalised = row_operands(p, state)
        query, key, value = (
            rows(array, normalised, matrix)
            for matrix in (weights.query, weights.key, weights.value)
        )
        if p.rotary:
            query, key = (turned(heads, cosines, sines) for heads in (query, key))
        attention = self.cache.attend(query, key, value, vote=vote, evictions=evictions)

        # A lane without a head has an output too, which is multiplied by weights of zero.
        heads = slice_operands(p, attention.outputs.reshape(-1))
        state = added(sums(array, heads, output_matrix(p, weights)), state)

        normalised = row_operands(p, state)
        up = rows(array, normalised, weights.up)
        activated = activation(rows(array, normalised, weights.gate), up) if p.gated else relu(up)
        between = slice_operands(p, activated)
        state = added(sums(array, between, inner_matrix(p, weights.down)), state)
        return LayerResult(state, attention)


def row_operands(p: VedaParameters, state: Codes) -> Codes:
    """Return the normalised state as operands of outer products, the 1 of the biases first."""
    normalised = layernorm(state, p.norm)
    return np.concatenate([np.full(int(p.biases), ONE, np.uint16), normalised])


def slice_operands(p: VedaParameters, vector: Codes) -> Codes:
    """Return a vector as operands of inner products: first a slice for the biases, with one 1."""
    ahead = np.zeros(p.biases * p.array.width, np.uint16)
    ahead[:1] = ONE
    return np.concatenate([ahead, vector])


def inner_matrix(p: VedaParameters, matrix: Codes) -> Codes:
    """Return the matrix that `slice_operands` multiplies: with biases, their slice is first."""
    if not p.biases:
        return matrix
    zeros = np.zeros((p.array.width - 1, matrix.shape[1]), np.uint16)
    return np.concatenate([matrix[:1], zeros, matrix[1:]])


def output_matrix(p: VedaParameters, weights: LayerWeights) -> Codes:
    """Return the matrix of the output projection, with weights of zero for lanes without a head."""
    own = weights.output.reshape(-1, p.hidden_size)
    missing = p.rounds * p.lanes - p.heads
    return inner_matrix(p, np.pad(own, ((0, missing * p.head_size), (0, 0))))


def relu(elements: Codes) -> Codes:
    """Return max(0, x) of FP16 codes; a NaN has no sign, and remains."""
    return np.where(elements >> 15, 0, elements).astype(np.uint16)


def rows(array: FlexiblePeArrayParameters, vector: Codes, matrix: Codes) -> Codes:
    """Return vector times matrix as outer products; FP16 codes of the matrix's trailing shape."""
    flat = matrix.reshape(len(matrix), -1)
    # All PEs take the same scalar, and each column has a PE.
    columns = -(-flat.shape[1] // array.planes) * array.planes
    weights = np.pad(flat, ((0, 0), (0, columns - flat.shape[1])))
    scalars = np.repeat(vector[:, np.newaxis], array.planes, axis=1)
    results = outer_product(array, scalars, weights)[: flat.shape[1]]
    return results.astype(np.uint16).reshape(matrix.shape[1:])


def sums(array: FlexiblePeArrayParameters, vector: Codes, matrix: Codes) -> Codes:
    """Return vector times matrix as inner products, in slices of the array's width."""
    slices = len(vector) // array.width
    vectors = vector.reshape(slices, 1, array.width)
    weights = matrix.T.reshape(-1, slices, array.width)
    apart = np.zeros(len(weights), np.uint16)
    parts = []
    for number in range(slices):
        own = weights[:, number]
        stationary = np.broadcast_to(vectors[number], own.shape)
        parts.append(inner_products(array, stationary, own, apart)[:, 0])
    total, *rest = parts
    for part in rest:
        total = float_add(array.sum_format, part, total)
    return float_convert(array.sum_format, BINARY16, total).astype(np.uint16)


def turned(heads: Codes, cosines: Codes, sines: Codes) -> Codes:
    """Return heads rotated by their position's angles; the elements of a pair are adjacent."""
    x, y = rotary(heads[:, 0::2], heads[:, 1::2], cosines, sines)
    return np.stack([x, y], axis=-1).reshape(heads.shape)


def added(results: Codes, state: Codes) -> Codes:
    """Return the state plus a matrix's results, in FP16."""
    return float_add(BINARY16, results.astype(np.uint64), state.astype(np.uint64)).astype(np.uint16)
