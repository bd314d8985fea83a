"""A random model in the dimensions of VEDA's preset `tiny`, and its lines in memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.layers import padded
from golden.veda.decoder_layer import folded
from golden.veda.whole_model import Block
from hdl.veda.parameters import VedaParameters
from systola.generation.system import half_codes
from testbenches.veda.model_lines import bytes_of_line, fixed_space, model_pieces
from tests.generation.random_models import random_model

BLOCKS = (
    Block(first=0, count=3, vote=True, evictions=0, predict=False),
    Block(first=3, count=1, vote=True, evictions=1, predict=True),
    Block(first=4, count=1, vote=True, evictions=1, predict=True),
)
"""A block without a prediction, then two tokens, of which each evicts one."""

TOKENS = ([3, 1, 4], [1], [5])
"""Input tokens of each block."""


class VedaModel:
    """Matrices of a random model as codes."""

    layers = 2

    def __init__(self, p: VedaParameters, *, seed: int) -> None:
        model = random_model(
            seed,
            hidden_size=p.hidden_size,
            intermediate_size=p.intermediate_size,
            heads=p.heads,
            kv_heads=p.kv_heads,
            head_size=p.head_size,
            layers=self.layers,
            vocabulary_size=p.vocabulary_size,
            context_length=p.context_length,
        )
        self.weights: Any = [
            folded(padded(model.layer(number), p.intermediate_size))
            for number in range(self.layers)
        ]
        self.vocabulary = half_codes("VEDA", "the LM head", model.projection())
        self.embedding = half_codes("VEDA", "the embedding", model.embedding)
        self.rope_base = model.shape.rope_base


def model_lines(p: VedaParameters, model: VedaModel) -> NDArray[np.uint8]:
    """Return the model's lines from `fixed_space` on, shape (lines, bytes)."""
    first, pieces = fixed_space(p), []
    for place, content in model_pieces(
        p, model.weights, model.vocabulary, model.rope_base, p.context_length
    ):
        pieces.append((place - first, content))
    count = max(place + len(content) for place, content in pieces)
    lines = np.zeros((count, bytes_of_line(p)), np.uint8)
    for place, content in pieces:
        lines[place : place + len(content)] = content
    return lines
