"""Layers for MEADOW: randomised ones, and randomised parts that SmolLM2's layers do not have."""

from dataclasses import replace

import numpy as np

from golden.llm.layers import LayerWeights
from golden.meadow.layer_quantisation import (
    IntegerLayer,
    RealLayer,
    Reals,
    layer_outputs,
    quantised_layer,
    real_layer,
)
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerVocabulary, integer_vocabulary
from hdl.arith.shapes import extremes
from hdl.meadow.parameters import MOST_LIFT, STATE, MeadowParameters
from hdl.meadow.tile.element_parameters import SCALE_BITS
from hdl.meadow.tile.tile_parameters import BIAS

FRACTION_BITS = 10
"""Fraction bits of the coarsest format of a norm's weights."""

STATE_STEP = 2.0**-8
"""Step of the hidden states in testbenches, the one that SmolLM2's calibration gives."""


def of_kind(weights: LayerWeights, p: MeadowParameters, rng: np.random.Generator) -> RealLayer:
    """Return the layer that an accelerator computes with such matrices.

    Weights and biases of norms, and biases of matrices, are random where the accelerator has them.
    An accelerator without a gate omits the gate's matrix.
    """
    layer = real_layer(weights)
    matrices = {name: w for name, w in layer.matrices.items() if p.gated or name != "gate"}
    layer = replace(layer, matrices=matrices)
    if p.layer_norm:
        norms, biases = (rng.normal(mean, 0.2, (2, p.hidden_size)) for mean in (1, 0))
        layer = replace(layer, norms=(norms[0], norms[1]), norm_biases=(biases[0], biases[1]))
    if p.biases:
        # Half of the standard deviation of the matrices' products with normalised rows.
        random = {
            name: rng.normal(0, 0.5, layer_outputs(layer, name))
            * np.linalg.norm(matrix.reshape(-1, layer_outputs(layer, name)[-1]), axis=0).mean()
            for name, matrix in matrices.items()
        }
        layer = replace(layer, biases=random)
    return layer


def random_weights(
    p: MeadowParameters, rng: np.random.Generator, freedom: float = 3
) -> LayerWeights:
    """Return matrices of numbers with heavy tails, as in models: Student's t-distribution.

    With fewer degrees of `freedom`, the matrices have fewer distinct pairs of INT8 numbers.
    """
    size, inner = p.head_size, p.intermediate_size
    shapes = {"query": (p.hidden_size, p.heads, size)}
    shapes |= dict.fromkeys(("key", "value"), (p.hidden_size, p.kv_heads, size))
    shapes |= {"output": (p.heads, size, p.hidden_size), "gate": (p.hidden_size, inner)}
    shapes |= {"up": (p.hidden_size, inner), "down": (inner, p.hidden_size)}
    return LayerWeights(
        **{n: rng.standard_t(freedom, shape) / np.sqrt(shape[0]) for n, shape in shapes.items()}
    )


def random_states(p: MeadowParameters, rng: np.random.Generator, *, spread: bool = False) -> Reals:
    """Return hidden states with rows, or with `spread` elements, of widely different magnitudes."""
    states = rng.normal(0, 1, (p.slots, p.hidden_size))
    return states * 2.0 ** rng.uniform(-6, 12, (p.slots, p.hidden_size if spread else 1))


def random_layers(
    p: MeadowParameters, rng: np.random.Generator, count: int, *, spread: bool = False
) -> tuple[list[IntegerLayer], Integers]:
    """Return layers of random weights, and random hidden states.

    With `spread`, elements of a row differ by powers of two, some are near the ends of their range,
    and so do weights.
    """
    states = random_states(p, rng, spread=spread)
    layers = []
    for number in range(count):
        real = of_kind(random_weights(p, rng, 1.5 if spread else 3), p, rng)
        layer = quantised_layer(real, states[: p.tokens], p, STATE_STEP)[0]
        # The second layer's epsilon is significant even next to rows of 24 bits. With token
        # exponents it is the first layer's, whose rows differ most: so do their exponents then.
        epsilon = (7, (1 << 32) - 3)[(number + p.token_exponents) % 2]
        lifts = {name: int(rng.integers(1, MOST_LIFT + 1)) for name in layer.lifts}
        tiles = extreme_tiles(layer, p, rng)
        # Calibrated shifts hardly differ.
        factors = {
            name: (scale, max(shift + int(rng.integers(-1, 2)), 0))
            for name, (scale, shift) in layer.factors.items()
        }
        changes = {"epsilon": epsilon, "lifts": lifts, "factors": factors, "tile_factors": tiles}
        layers.append(replace(layer, **changes))
    steps = np.rint(states / STATE_STEP).astype(np.int64)
    if spread:
        # Near the ends of the range, which sums exceed.
        least, most = extremes(STATE)
        ends = np.where(rng.random(steps.shape) < 0.5, least, most)
        steps = np.where(rng.random(steps.shape) < 0.1, ends - np.sign(ends), steps)
    return layers, steps


def extreme_tiles(
    layer: IntegerLayer, p: MeadowParameters, rng: np.random.Generator
) -> dict[str, Integers]:
    """Return the factors of all tiles, of which some are at the ends of their range.

    Of two matrices, one tile has the largest scale without a shift, and another one the smallest
    scale with the largest shift. The others differ by powers of two.
    """
    factors = {name: tiles.copy() for name, tiles in layer.tile_factors.items()}
    for tiles in factors.values():
        tiles[:, 1] += rng.integers(-2, 3, len(tiles))
    for name in rng.permutation(sorted(factors))[:2]:
        tiles = factors[name]
        ends = ((1 << SCALE_BITS) - 1, 0), (1, p.element.sum_bits + SCALE_BITS - 1)
        for place, end in zip(rng.permutation(len(tiles))[:2], ends, strict=False):
            tiles[place] = end
    return factors


def random_vocabulary(
    p: MeadowParameters, rng: np.random.Generator, *, alike: bool = False
) -> IntegerVocabulary:
    """Return a random LM head, in which half of the tokens have the logits of other tokens.

    With `alike`, all tokens have the logit of one token, whose sign differs between states.
    """
    states = rng.normal(0, 1, (4, p.hidden_size))
    projection = rng.normal(0, 1, (p.hidden_size, p.vocabulary_size))
    twins = rng.integers(0, p.vocabulary_size, p.vocabulary_size // 2)
    columns = rng.permutation(p.vocabulary_size)[: len(twins)]
    if alike:
        twins, columns = np.full(p.vocabulary_size, twins[0]), np.arange(p.vocabulary_size)
    projection[:, columns] = projection[:, twins]
    # With more fraction bits, weights of this magnitude do not fit the norm's 16 bits. The integers
    # of the coarsest format fit every other one, in which they are smaller numbers.
    coarse = replace(p, weight_fraction=FRACTION_BITS)
    vocabulary = integer_vocabulary(projection, states, coarse, STATE_STEP)
    if p.layer_norm:
        vocabulary = replace(vocabulary, norm_bias=rng.integers(-8192, 8192, p.hidden_size))
    if p.biases:
        # Biases of all magnitudes, up to the largest.
        most = 2 ** rng.uniform(8, BIAS.width - 1)
        bias = rng.integers(-int(most), int(most), p.vocabulary_size)
        bias[columns] = bias[twins]
        vocabulary = replace(vocabulary, bias=bias)
    return vocabulary
