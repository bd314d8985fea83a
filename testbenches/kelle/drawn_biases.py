"""Biases for a layer that has none."""

import numpy as np

from golden.kelle.decoder_layer import DecoderLayer, ExactLayer, quantised_layer
from hdl.kelle.parameters import KelleParameters


def with_biases(layer: DecoderLayer, p: KelleParameters, seed: int) -> DecoderLayer:
    """Return a layer whose projections have biases as large as what its matrices make.

    An output's bias is drawn about the root mean square of its column, which is what inputs of a
    root mean square of 1 give.
    """
    rng = np.random.default_rng(seed)
    biases = {
        which: rng.normal(0, np.linalg.norm(matrix, axis=0))
        for which, matrix in layer.matrices.items()
    }
    return quantised_layer(ExactLayer(layer.matrices, biases), layer.states, p)
