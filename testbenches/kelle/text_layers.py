"""Layers that the accelerator decodes with, and the states of a text before them."""

import numpy as np

from golden.kelle.decoder_layer import DecoderLayer, ExactLayer, quantised_layer, real_layer
from golden.llm import open_trace
from hdl.kelle.parameters import KelleParameters

TOKENS = 640
"""Length of the text."""


def layer_numbers(p: KelleParameters) -> list[int]:
    """Return which layers: cut to size, the first one still has tokens that become popular."""
    order = (0, 29, 14) if p.slots <= 16 else (14, 29, 0)
    return [order[layer % len(order)] for layer in range(p.layers)]


def open_layers(p: KelleParameters) -> list[DecoderLayer]:
    """Return the layers, with the states of a text; biases are drawn, since SmolLM2 has none."""
    numbers = layer_numbers(p)
    trace = open_trace(text="prose", tokens=TOKENS, layers=numbers)
    opened = {number: real_layer(trace, number, p) for number in set(numbers)}
    if p.biases:
        opened = {number: with_biases(own, p, number) for number, own in opened.items()}
    return [opened[number] for number in numbers]


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
