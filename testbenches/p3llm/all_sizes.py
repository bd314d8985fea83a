"""Random layers and LM heads for P3-LLM's system, with numbers of all magnitudes and signs.

With the distribution of a model's tensors, most digits of a sum are lost afterwards: in a larger
hidden state, or in an input's three mantissa bits. Here the neighbours of each number of a vector
are much smaller.
"""

from dataclasses import replace

import numpy as np

from golden.arith.float_values import codes, values
from golden.p3llm.p3llm import Matrix, Singles, Vocabulary, Weights, normed
from hdl.p3llm.parameters import P3llmParameters
from testbenches.p3llm.system_models import drawn_codes

EXPONENTS = {"qkv": (-8, 2), "output": (-14, 16), "gate_up": (-8, 7), "down": (-14, 16)}
"""Powers of two by which the rows of a matrix differ, without overflow of FP16 results."""

LESS = {"qkv": (0, -12), "gate_up": (0, -6, -10)}
"""Powers of two for matrices whose outputs become inputs, so that the scales of these vary too."""


def rescaled(matrix: Matrix, factors: np.ndarray) -> Matrix:
    """Return a matrix with each row times a factor."""
    return replace(matrix, scales=codes(values(matrix.scales) * factors))


def layer_of_all_sizes(p: P3llmParameters, rng: np.random.Generator) -> Weights:
    """Generate a layer's codes, with row scales of all magnitudes and signs, some subnormal."""
    weights = drawn_codes(p, rng)
    matrices = {}
    for name, (least, most) in EXPONENTS.items():
        matrix: Matrix = getattr(weights, name)
        rows = len(matrix.scales)
        powers = rng.uniform(least, most, rows) + rng.choice(np.array(LESS.get(name, (0,))))
        factors = np.exp2(powers) * rng.choice(np.array([-1, 1]), rows)
        matrices[name] = rescaled(matrix, factors)
    return replace(weights, **matrices)


def states_of_all_sizes(p: P3llmParameters, rng: np.random.Generator) -> Singles:
    """Generate hidden states [requests, width]: a quarter zeros, some subnormal, one large."""
    size = (p.batch, p.hidden_size)
    states = rng.normal(size=size) * np.exp2(rng.uniform(-30, 4, size))
    states = np.where(rng.random(size) < 0.25, 0, states)
    states = np.where(rng.random(size) < 0.05, states * 2.0**-125, states)
    states[:, rng.integers(p.hidden_size)] = 4
    return states.astype(np.float32)


def vocabulary_of_all_sizes(
    vocabulary: Vocabulary, states: Singles, kind: int, p: P3llmParameters, rng: np.random.Generator
) -> Vocabulary:
    """Rescale the rows of an LM head, so that the largest logit has any magnitude and sign.

    Parameters
    ----------
    vocabulary : Vocabulary
        LM head to rescale, including the rows after the last token.
    states : numpy.ndarray
        Hidden states, shape (requests, width).
    kind : int
        Logits of the first request: 0 any sign, 1 negative, 2 zeros of any sign.
    p : P3llmParameters
        Parameters of the system.
    rng : numpy.random.Generator
        Source of random numbers.
    """
    matrix = vocabulary.matrix
    rows = len(matrix.scales)
    factors = np.exp2(rng.uniform(-12, 4, rows)) * rng.choice(np.array([-1, 1]), rows)
    if kind == 1:
        sums = matrix.product(normed(states[0], vocabulary.norm, p))
        factors = np.where(sums < 0, abs(factors), -abs(factors))
    if kind == 2:
        factors *= 0
    # Rows that fill up the last slice are those of the first token.
    factors[p.vocabulary_size :] = factors[0]
    return replace(vocabulary, matrix=rescaled(matrix, factors))
