"""Weights as beats of their loads, and the words of scales of their outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from golden.kelle.decoder_layer import DecoderLayer
from hdl.kelle.instructions import PROJECTIONS, Operation
from hdl.kelle.parameters import KelleParameters

BEFORE_ATTENTION = ((Operation.QUERY,), (Operation.KEY,), (Operation.VALUE,))
"""Projections in the scheduler's order; those of a group alternate, head by head."""


def after_attention(p: KelleParameters) -> tuple[tuple[Operation, ...], ...]:
    """Return the projections after the attention, in groups as `BEFORE_ATTENTION`."""
    gate = (Operation.GATE,) if p.gated else ()
    return (Operation.OUTPUT,), (Operation.UP, *gate), (Operation.DOWN,)


def matrix_beats(matrix: NDArray[Any], p: KelleParameters) -> NDArray[np.uint8]:
    """Return a matrix [inputs, outputs] as bytes [tiles of outputs, beats, bytes].

    Each tile of outputs has the beats of all inputs; a beat is one row of each band. Two weights of
    4 bits share a byte, the first one in the lower nibble.
    """
    inputs, outputs = (count // p.rows for count in matrix.shape)
    tiles = matrix.astype(np.int8).view(np.uint8).reshape(inputs, p.rows, outputs, p.rows)
    array = p.array.array
    bands = tiles.transpose(2, 0, 1, 3).reshape(
        outputs, inputs, array.bands, array.load_cycles, p.rows
    )
    weights = bands.swapaxes(2, 3).reshape(outputs, -1, p.bands * p.rows, p.weights_per_byte)
    places = np.arange(p.weights_per_byte, dtype=np.uint8) * p.weight_bits
    own_bits = weights & ((1 << p.weight_bits) - 1)
    return np.bitwise_or.reduce(own_bits << places, axis=-1, dtype=np.uint8)


def layer_beats(layer: DecoderLayer, p: KelleParameters) -> NDArray[np.uint8]:
    """Return a layer's beats in the order of the scheduler's program, [beats, bytes]."""
    beat_bytes = p.bands * p.rows
    parts = []
    for group in BEFORE_ATTENTION + after_attention(p):
        beats = [matrix_beats(layer.projections[which].weights, p) for which in group]
        # The operations of a group alternate, head by head.
        heads = [own.reshape(p.operations(group[0]), -1, beat_bytes) for own in beats]
        parts.append(np.stack(heads, axis=1).reshape(-1, beat_bytes))
    return np.concatenate(parts)


def scale_words(
    layers: Sequence[DecoderLayer], p: KelleParameters
) -> tuple[data.StructLayout, dict[str, Any]]:
    """Return all words of scales, as `pack` takes them."""
    words = []
    for number, layer in enumerate(layers):
        for which in (*PROJECTIONS, Operation.SCORE, Operation.ATTEND):
            first = number * p.scales + p.scale(which)
            count = p.operations(which) * p.head_slices if which in PROJECTIONS else 1
            words += [(first + i, *layer.word(p, which, i)) for i in range(count)]
    address, scale, shift, bias = (np.array(column) for column in zip(*words, strict=True))
    values = {"scale": scale, "shift": shift} | ({"bias": bias} if p.biases else {})
    return p.array.scales_layout, {"address": address, "values": values}
