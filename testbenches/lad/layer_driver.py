"""Data outside LAD except for its heads' rows: weights, norms, angles, hidden states."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.lad.lad import Lad, LayerWeights
from golden.lad.lad_tiles import lad_tiles
from golden.llm import open_trace
from hdl.lad.parameters import LadParameters
from testbenches.lad.linear.tb_linear_module import weight_payloads
from testbenches.lad.vectors import LAYERS, TOKENS, random_codes
from testbenches.packing import from_integers, pack, to_integers, unpack

Codes = NDArray[np.uint16]


def begun_model(p: LadParameters, rng: np.random.Generator, begun: Callable[[int], int]) -> Lad:
    """Return a model with `begun` random positions of each sample's text, and no row on chip.

    The first head's denominator begins below 0, and increases with its positions.
    """
    model = Lad(p, lad_tiles(p.shared_tiles))
    for layer in range(p.layers):
        for sample in range(p.batch):
            # Query heads of a key/value head share its keys and values.
            groups = np.reshape(model.numbers(layer, sample), (-1, p.group_size))
            for group in groups.tolist() * begun(sample):
                key, value = codes(rng.standard_normal((2, p.head_size)))
                for head in group:
                    model.tiles.step(head, codes(rng.standard_normal(p.head_size)), key, value)
    # Not on chip yet: the record of active positions.
    for head in model.tiles.heads:
        head.latest = head.latest[:0]
    model.tiles.heads[0].caches[-1, -1] = p.tile.ac.cache_format.from_fraction(Fraction(-3, 2))
    return model


def real_weights(p: LadParameters, layer: int) -> LayerWeights:
    """Return a layer of SmolLM2; smaller matrices have a part of it, larger ones repeat it.

    Parts are scaled, so that sums keep their magnitude.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    width, heads, shared = p.hidden_size, p.heads * p.head_size, p.kv_heads * p.head_size

    def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> Codes:
        whole = trace.linear(layer, f"{name}_proj").weight
        part = resized(resized(whole, rows, axis=0), columns, axis=1)
        return codes(scale * part * np.sqrt(whole.shape[1] / columns))

    return LayerWeights(
        input_norm=codes(resized(trace.norm(layer, "input"), width)),
        post_norm=codes(resized(trace.norm(layer, "post_attention"), width)),
        query=matrix("q", heads, width, p.head_size**-0.5),
        key=matrix("k", shared, width),
        value=matrix("v", shared, width),
        output=matrix("o", width, heads),
        gate=matrix("gate", p.intermediate_size, width),
        up=matrix("up", p.intermediate_size, width),
        down=matrix("down", width, p.intermediate_size),
        epsilon=p.epsilon,
    )


def real_vocabulary(p: LadParameters) -> tuple[Codes, Codes]:
    """Return a norm's weights [hidden_size], and a matrix [tokens, hidden_size] with equal rows.

    The rows are those of a feed-forward layer of SmolLM2. Ties must resolve to the lowest token,
    also with other tokens in between.
    """
    weights = real_weights(p, LAYERS[-1])
    rows = resized(weights.gate, -(-p.vocabulary_size // 2))
    return weights.post_norm, np.concatenate([rows, rows])[: p.vocabulary_size]


def random_vocabulary(p: LadParameters, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return a last norm's weights, and a matrix whose sums are equal, neighbours, or NaNs.

    Only the first element of a state passes the norm, so that each sum is one product.
    """
    weights = np.where(np.arange(p.hidden_size) == 0, codes(np.ones(1)), 0).astype(np.uint16)
    matrix = random_codes(rng, (p.vocabulary_size, p.hidden_size))
    matrix = np.where(np.isfinite(values(matrix)), matrix, 0)
    first = int(rng.integers(4, 0x7BFB)) + rng.integers(-4, 5, p.vocabulary_size)
    first = np.where(rng.random(p.vocabulary_size) < 0.3, first, first[0])
    sign = 0x8000 * (
        rng.integers(0, 2, p.vocabulary_size) if rng.random() < 0.3 else rng.integers(2)
    )
    special = rng.choice([0, 0x7C00, 0x7E00, 0x7E00], p.vocabulary_size)
    rare = rng.random(p.vocabulary_size) < rng.choice([0, 0.1, 1])
    matrix[:, 0] = np.where(rare, special, first) ^ sign
    return weights, matrix


def real_states(p: LadParameters, layer: int, tokens: range) -> Codes:
    """Return the hidden states [tokens, hidden_size] that are input to a layer of SmolLM2."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    states = trace.hidden(layer)[0][tokens.start : tokens.stop]
    return codes(resized(states, p.hidden_size, axis=1))


def resized(array: Any, size: int, *, axis: int = 0) -> Any:
    """Return the first elements along an axis, which repeats after its end."""
    return np.take(array, np.arange(size), axis=axis, mode="wrap")


class LayerDriver:
    """Driver of the streams of slices and weights, in the program's order.

    Parameters
    ----------
    bench : Any
        Bench with the streams `slices`, `weights` and `states`.
    p : LadParameters
        Dimensions of model and tiles.
    """

    def __init__(self, bench: Any, p: LadParameters) -> None:
        self.streams, self.p = bench, p

    def send(
        self,
        layers: list[LayerWeights],
        states: Codes,
        cosines: Codes,
        sines: Codes,
        lengths: list[int],
        vocabulary: tuple[Codes, Codes] | None = None,
    ) -> None:
        """Queue the data of one token of each sample.

        Parameters
        ----------
        layers : list[LayerWeights]
            Weights of all layers.
        states : array [batch, hidden_size]
            Hidden states.
        cosines, sines : array [batch, head_size]
            Angles for each sample's position.
        lengths : list[int]
            Positions of each sample, including this token.
        vocabulary : tuple, optional
            The last norm's weights [hidden_size] and the LM head [tokens, hidden_size], if the
            token predicts.
        """
        size = self.p.head_size
        predicts = int(vocabulary is not None)
        self._slices(np.concatenate([cosines, sines]), np.tile(lengths, 2), predicts)
        # For each slice index all samples.
        self._slices(states.reshape(len(states), -1, size).swapaxes(0, 1))
        for w in layers:
            for norm in (w.input_norm, w.post_norm):
                self._slices(norm)
            # For each period the rows of its heads.
            parts = (np.split(one, self.p.periods) for one in (w.query, w.key, w.value))
            for rows in zip(*parts, strict=True):
                self._matrix(np.concatenate(rows))
            self._matrix(w.output)
            self._matrix(np.concatenate([w.gate, w.up]))
            self._matrix(w.down)
        if vocabulary is not None:
            norm, matrix = vocabulary
            self._slices(norm)
            # Rows after the last token are noise, like the missing rows of any matrix.
            rows = self.p.piece_row_groups * self.p.tile.linear.units
            missing = self.p.pieces * rows - len(matrix)
            noise = self.streams.bench.numpy_rng.integers(0, 1 << 16, (missing, matrix.shape[1]))
            for piece in np.split(np.concatenate([matrix, noise]), self.p.pieces):
                self._matrix(piece)

    def received(self, payloads: list[int]) -> tuple[Codes, NDArray[Any]]:
        """Return hidden states [times, batch, hidden_size] and flags of slices [times, slices]."""
        p, layout = self.p, self.p.state_layout
        got = unpack(layout, from_integers(payloads, layout.size))
        shape = (-1, p.hidden_slices, p.batch, p.head_size)
        values = got["values"].astype(np.uint16).reshape(shape)
        states = values.swapaxes(1, 2).reshape(len(values), p.batch, -1)
        return states, got["not_positive"].reshape(len(values), -1)

    def _slices(self, values: Codes, lengths: Any = None, predicts: int = 0) -> None:
        values = values.reshape(-1, self.p.head_size)
        fields = {"values": values, "length": np.zeros(len(values)) if lengths is None else lengths}
        if self.p.vocabulary_size:
            fields["predicts"] = np.full(len(values), predicts)
        self.streams.slices.send(to_integers(pack(self.p.slice_layout, fields)))

    def _matrix(self, matrix: Codes) -> None:
        payloads = weight_payloads(self.p.tile.linear, matrix, self.streams.bench.numpy_rng)
        self.streams.weights.send(payloads)
