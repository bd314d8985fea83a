"""A whole language model on LAD: all layers token by token, the final norm, the LM head."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.lad.lad import Lad, LayerWeights, decoder_layer, row_norm
from golden.lad.lad_tile import Head, Step
from golden.lad.lad_tiles import lad_tiles
from golden.lad.linear.half_matrix import HalfMatrix
from golden.llm.language_model import LanguageModel
from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY16
from hdl.errors import UserError
from hdl.lad.parameters import LadParameters

Codes = NDArray[np.uint16]
MATRICES = ("query", "key", "value", "output", "gate", "up", "down")


@dataclass(frozen=True, eq=False)
class HalfModel:
    """Weights of a language model as FP16 codes.

    Members
    -------
    layers : list of LayerWeights
        Weights of all layers; the feed-forward layer is padded with zeros to whole slices.
    final_norm : array [hidden_size]
        Weights of the last norm.
    vocabulary : array [tokens, hidden_size]
        The LM head.
    rope_base : float
        Base of the rotary embedding's angles.
    """

    layers: list[LayerWeights]
    final_norm: Codes
    vocabulary: Codes
    rope_base: float

    @classmethod
    def of(cls, model: LanguageModel, p: LadParameters) -> "HalfModel":
        """Convert a model's weights to FP16.

        Raises
        ------
        UserError
            If a weight is too large for FP16.
        """
        s = model.shape

        def rounded(layer: int | None, name: str, scale: float = 1.0) -> Codes:
            with np.errstate(over="ignore"):
                found = codes(model.tensor(layer, name).astype(np.float64) * scale)
            if not np.isfinite(values(found)).all():
                where = "the model" if layer is None else f"layer {layer}"
                raise UserError(f"the weights of {name} in {where} must fit FP16, up to 65504")
            return found

        def rotated(layer: int, name: str, scale: float = 1.0) -> Codes:
            # Here an element is paired with the one half a head above; in the file with its
            # neighbour.
            rows = rounded(layer, name, scale).reshape(-1, s.head_size // 2, 2, s.hidden_size)
            return rows.swapaxes(1, 2).reshape(-1, s.hidden_size)

        filled = (0, p.intermediate_size - s.intermediate_size)
        layers = [
            LayerWeights(
                input_norm=rounded(number, "input_norm"),
                post_norm=rounded(number, "feed_forward_norm"),
                query=rotated(number, "query", s.head_size**-0.5),
                key=rotated(number, "key"),
                value=rounded(number, "value"),
                output=rounded(number, "output"),
                gate=np.pad(rounded(number, "gate"), (filled, (0, 0))),
                up=np.pad(rounded(number, "up"), (filled, (0, 0))),
                down=np.pad(rounded(number, "down"), ((0, 0), filled)),
                epsilon=p.epsilon,
            )
            for number in range(s.layers)
        ]
        return cls(layers, rounded(None, "final_norm"), rounded(None, "projection"), s.rope_base)


def angles(position: int, head_size: int, base: float) -> tuple[Codes, Codes]:
    """Return cosines and sines [head_size] of a position, for both halves of a head."""
    angle = position * base ** (-np.arange(0, head_size, 2) / head_size)
    return codes(np.tile(np.cos(angle), 2)), codes(np.tile(np.sin(angle), 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenResult:
    """Result of one token of each sample.

    Members
    -------
    states : array [layers, batch, hidden_size]
        Hidden states after each layer.
    steps : list of list of Step
        Steps of each layer, sample by sample, head by head.
    flags : array [layers]
        Whether any denominator up to that layer was not above 0.
    sums : array [batch, tokens] or None
        Sums of the LM head, if the token predicts.
    predictions : list of (int, int)
        For each sample the predicted token, and its sum.
    """

    states: Codes
    steps: list[list[Step]]
    flags: NDArray[np.bool_]
    sums: Codes | None
    predictions: list[tuple[int, int]]


@dataclass(eq=False)
class WholeModel:
    """All layers of a model, and the data of their heads outside.

    Parameters
    ----------
    p : LadParameters
        Dimensions of model and tiles.
    model : HalfModel
        Weights of the model.

    Members
    -------
    lad : Lad
        The accelerator, whose tiles have the heads of all layers.
    """

    p: LadParameters
    model: HalfModel
    lad: Lad = field(init=False)

    def __post_init__(self) -> None:
        """Convert the matrices; begin with empty heads."""
        size = self.p.head_size
        self._matrices = [
            {name: HalfMatrix(getattr(layer, name), size) for name in MATRICES}
            for layer in self.model.layers
        ]
        self._vocabulary = HalfMatrix(self.model.vocabulary, size)
        self.begin()

    def begin(self, heads: list[Head] | None = None) -> None:
        """Begin a text, or continue from given heads without any row on chip."""
        self.lad = Lad(self.p, lad_tiles(self.p.shared_tiles, heads))
        for head in self.lad.tiles.heads:
            head.latest = head.latest[:0]

    def step(self, position: int, states: Codes, *, predict: bool = True) -> TokenResult:
        """Compute one token of each sample through all layers.

        Parameters
        ----------
        position : int
            Position of all samples' tokens.
        states : array [batch, hidden_size]
            Rows of the embedding.
        predict : bool
            Compute the LM head after the last layer.
        """
        p, size = self.p, self.p.head_size
        cosine, sine = angles(position, size, self.model.rope_base)
        after, steps = [], []
        for layer, (weights, matrices) in enumerate(
            zip(self.model.layers, self._matrices, strict=True)
        ):
            done: list[Step] = []
            rows = []
            for sample, state in enumerate(states):
                row, own = decoder_layer(
                    self.lad.tiles,
                    weights,
                    state,
                    cosine,
                    sine,
                    numbers=self.lad.numbers(layer, sample),
                    project=_by_name(matrices),
                )
                rows.append(row)
                done += own
            states = np.stack(rows)
            after.append(states)
            steps.append(done)
        flags = np.array([any(step.not_positive for step in own) for own in steps])
        sums = None
        if predict:
            weight = self.model.final_norm
            sums = np.stack(
                [self._vocabulary(row_norm(state, weight, p.epsilon, size)) for state in states]
            )
        return TokenResult(
            states=np.stack(after),
            steps=steps,
            flags=np.logical_or.accumulate(flags),
            sums=sums,
            predictions=[] if sums is None else [argmax(BINARY16, own) for own in sums],
        )

    def products(self, *, predict: bool) -> int:
        """Return the number of products of slices per vector unit for a token's matrices."""
        layers: Sequence[Any] = self.model.layers
        own = sum(self.lad.products(weights) for weights in layers)
        return own + (self.lad.vocabulary_products() if predict else 0)


def _by_name(matrices: dict[str, HalfMatrix]) -> Any:
    return lambda name, inputs: matrices[name](inputs)
