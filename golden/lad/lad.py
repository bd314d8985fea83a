"""Decoder layers on LAD, bit-exact: norms, projections, heads, feed-forward layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values
from golden.lad.lad_tile import LadTile, Step
from golden.lad.lad_tiles import group_numbers
from golden.lad.linear.linear_module import linear
from golden.lad.sfm.special_function_module import add, norm, rotary, silu
from hdl.lad.parameters import LadParameters

Codes = NDArray[np.uint16]
Reals = NDArray[np.float64]
Project = Callable[[str, Codes], Codes]
"""Function from a matrix's name and its inputs to the sums."""


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """FP16 codes of a layer's matrices [out, in] and norms [hidden_size].

    Members
    -------
    input_norm, post_norm : array [hidden_size]
        Weights of both norms.
    query, key, value, output : array
        Projections; that of the query is divided by the square root of the head size.
    gate, up, down : array
        The feed-forward layer.
    epsilon : int
        FP16 code of the epsilon of both norms.
    """

    input_norm: Codes
    post_norm: Codes
    query: Codes
    key: Codes
    value: Codes
    output: Codes
    gate: Codes
    up: Codes
    down: Codes
    epsilon: int


def decoder_layer(
    tile: LadTile,
    weights: LayerWeights,
    state: Codes,
    cosine: Codes,
    sine: Codes,
    *,
    numbers: Sequence[int],
    project: Project | None = None,
) -> tuple[Codes, list[Step]]:
    """Return a token's hidden state [hidden_size] after the layer, and the steps of its heads.

    Parameters
    ----------
    tile : LadTile
        The tile with the heads.
    weights : LayerWeights
        Weights of the layer.
    state : array [hidden_size]
        FP16 codes of the hidden state.
    cosine, sine : array [head_size]
        FP16 codes for the token's position.
    numbers : Sequence[int]
        Index of each query head among the tile's heads.
    project : Project, optional
        Another way to multiply by the layer's matrices, with the same result.
    """
    size = tile.parameters.vector.head_size
    w = weights

    def directly(name: str, inputs: Codes) -> Codes:
        return linear(getattr(w, name), inputs[np.newaxis], head_size=size)[0]

    by = project or directly
    normed = row_norm(state, w.input_norm, w.epsilon, size)
    queries, keys, vectors = (
        by(name, normed).reshape(-1, size) for name in ("query", "key", "value")
    )
    queries, keys = (rotary(heads, cosine, sine) for heads in (queries, keys))
    shared = len(queries) // len(keys)
    steps = [
        tile.step(number, query, keys[head // shared], vectors[head // shared])
        for head, (number, query) in enumerate(zip(numbers, queries, strict=True))
    ]
    state = add(state, by("output", np.concatenate([step.output for step in steps])))
    normed = row_norm(state, w.post_norm, w.epsilon, size)
    gate, up = (by(name, normed).reshape(-1, size) for name in ("gate", "up"))
    state = add(state, by("down", silu(gate, up).reshape(-1)))
    return state, steps


@dataclass(frozen=True)
class Lad:
    """An accelerator; the heads of its tiles are the query heads of all layers and samples.

    Parameters
    ----------
    p : LadParameters
        Dimensions of model and tiles.
    tiles : LadTile
        All tiles, with all data outside.
    """

    p: LadParameters
    tiles: LadTile

    def numbers(self, layer: int, sample: int) -> list[int]:
        """Return the indices of a sample's query heads of a layer."""
        p, each = self.p, self.p.tile.shared
        numbers = []
        for kv_head in range(layer * p.kv_heads, (layer + 1) * p.kv_heads):
            first = (kv_head * p.batch + sample) * p.group_size // each
            for group in range(first, first + p.group_size // each):
                numbers += group_numbers(p.shared_tiles, group)
        return numbers

    def layer(self, number: int) -> int:
        """Return the layer of a head's index."""
        head, tile = divmod(number, self.p.tiles)
        group = head // self.p.tile.shared * self.p.tiles + tile
        return group * self.p.tile.shared // (self.p.heads * self.p.batch)

    def token(
        self, layers: Sequence[LayerWeights], states: Codes, cosines: Codes, sines: Codes
    ) -> tuple[Codes, list[Step]]:
        """Return the hidden states [layers, batch, hidden_size] after each layer, and all steps.

        Parameters
        ----------
        layers : Sequence[LayerWeights]
            Weights of all layers.
        states : array [batch, hidden_size]
            FP16 codes of the hidden states.
        cosines, sines : array [batch, head_size]
            FP16 codes for each sample's position.
        """
        outputs, steps = [], []
        for sample, (state, cosine, sine) in enumerate(zip(states, cosines, sines, strict=True)):
            for layer, weights in enumerate(layers):
                numbers = self.numbers(layer, sample)
                state, done = decoder_layer(
                    self.tiles, weights, state, cosine, sine, numbers=numbers
                )
                outputs.append(state)
                steps += done
        return np.stack(outputs).reshape(len(states), len(layers), -1).swapaxes(0, 1), steps

    def sums(self, norm_weight: Codes, vocabulary: Codes, states: Codes) -> Codes:
        """Return each sample's sums [batch, tokens] of the LM head.

        Parameters
        ----------
        norm_weight : array [hidden_size]
            FP16 codes of the last norm.
        vocabulary : array [tokens, hidden_size]
            FP16 codes of the LM head.
        states : array [batch, hidden_size]
            FP16 codes of the states after the last layer.
        """
        size = self.p.head_size
        normed = np.stack([row_norm(state, norm_weight, self.p.epsilon, size) for state in states])
        return linear(vocabulary, normed, head_size=size)

    def vocabulary_products(self) -> int:
        """Return the number of products of slices per vector unit for the LM head."""
        p = self.p
        return p.batch * p.pieces * p.piece_row_groups * p.hidden_slices if p.vocabulary_size else 0

    def products(self, weights: LayerWeights) -> int:
        """Return the number of products of slices per vector unit for a layer's matrices."""
        linear = self.p.tile.linear
        matrices = (
            np.concatenate([weights.query, weights.key, weights.value]),
            weights.output,
            np.concatenate([weights.gate, weights.up]),
            weights.down,
        )
        return self.p.batch * sum(
            -(-rows // linear.units) * -(-columns // self.p.head_size)
            for rows, columns in (matrix.shape for matrix in matrices)
        )


def row_norm(state: Codes, weight: Codes, epsilon: int, size: int) -> Codes:
    """Return the RMSNorm of a hidden state [hidden_size]."""
    normed = norm(state, weight, weight, np.array(epsilon), head_size=size, rms=True)
    return normed.reshape(state.shape)


def exact_layer(
    weights: LayerWeights,
    states: Reals,
    cosines: Reals,
    sines: Reals,
    *,
    head_size: int,
) -> Reals:
    """Return the states [tokens, hidden_size] after the layer with exact attention, in float64."""
    w = {name: values(getattr(weights, name)) for name in weights.__dataclass_fields__}

    def normed(x: Reals, weight: Reals) -> Reals:
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + w["epsilon"]) * weight

    def rotated(x: Reals) -> Reals:
        lower, upper = np.split(x, 2, axis=-1)
        other = np.concatenate([-upper, lower], axis=-1)
        return x * cosines[:, np.newaxis] + other * sines[:, np.newaxis]

    def heads(x: Reals, name: str) -> Reals:
        return (x @ w[name].T).reshape(len(x), -1, head_size)

    inner = normed(states, w["input_norm"])
    queries, keys = rotated(heads(inner, "query")), rotated(heads(inner, "key"))
    vectors = heads(inner, "value")
    shared = queries.shape[1] // keys.shape[1]
    keys, vectors = (np.repeat(part, shared, axis=1) for part in (keys, vectors))
    scores = np.einsum("thd,shd->hts", queries, keys)
    later = np.triu(np.ones(scores.shape[1:], bool), 1)
    scores = np.where(later, -np.inf, scores)
    weighed = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weighed /= weighed.sum(axis=-1, keepdims=True)
    attended = np.einsum("hts,shd->thd", weighed, vectors).reshape(len(states), -1)
    states = states + attended @ w["output"].T
    inner = normed(states, w["post_norm"])
    gate = inner @ w["gate"].T
    activated = gate / (1 + np.exp(-gate)) * (inner @ w["up"].T)
    return states + activated @ w["down"].T
