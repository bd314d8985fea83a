"""Layers for the accelerator's testbenches, with their input states for a text."""

import numpy as np

from golden.kelle.decoder_layer import DecoderLayer, ExactLayer, quantised_layer, real_layer
from golden.llm import open_trace
from hdl.kelle.parameters import KelleParameters

TOKENS = 640
"""Length of the text."""


def layer_numbers(p: KelleParameters) -> list[int]:
    """Return the layers' numbers; in small presets, layer 0 has tokens that become popular."""
    order = (0, 29, 14) if p.slots <= 16 else (14, 29, 0)
    return [order[layer % len(order)] for layer in range(p.layers)]


def open_layers(p: KelleParameters) -> list[DecoderLayer]:
    """Return the layers, with the states of a text and random biases, since SmolLM2 has none."""
    numbers = layer_numbers(p)
    trace = open_trace(text="prose", tokens=TOKENS, layers=numbers)
    opened = {number: real_layer(trace, number, p) for number in set(numbers)}
    if p.biases:
        opened = {number: with_biases(own, p, number) for number, own in opened.items()}
    return [opened[number] for number in numbers]


def with_biases(layer: DecoderLayer, p: KelleParameters, seed: int) -> DecoderLayer:
    """Return a layer with biases of the same size as the outputs of its projections.

    The standard deviation of an output's bias is the norm of its column, which is the root mean
    square of the output for inputs with a root mean square of 1.
    """
    rng = np.random.default_rng(seed)
    biases = {
        which: rng.normal(0, np.linalg.norm(matrix, axis=0))
        for which, matrix in layer.matrices.items()
    }
    return quantised_layer(ExactLayer(layer.matrices, biases), layer.states, p)
