"""A text in Kelle with the AXI shell: contents of memory, and the programs of its jobs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from golden.kelle.decoder_layer import DecoderLayer
from golden.kelle.eviction.prefill import Prefill
from golden.kelle.kelle import Integers, KelleModel
from golden.kelle.whole_model import IntegerVocabulary
from golden.shell.kelle_axi import KelleProgram, input_place
from golden.shell.shell_jobs import Bytes
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from testbenches.kelle.cache_words import cache_rows, kept_words, state_words
from testbenches.kelle.weight_beats import layer_beats, matrix_beats, scale_words
from testbenches.packing import pack, to_integers


class KelleText:
    """Programs of a model's text.

    Parameters
    ----------
    p : KelleAxiParameters
        Dimensions of the accelerator.
    layers : Sequence[DecoderLayer]
        Layers of the model.
    vocabulary : IntegerVocabulary, optional
        LM head.
    """

    def __init__(
        self,
        p: KelleAxiParameters,
        layers: Sequence[DecoderLayer],
        vocabulary: IntegerVocabulary | None,
    ) -> None:
        self.p, self.layers, self.vocabulary = p, layers, vocabulary

    def weight_words(self) -> NDArray[np.uint8]:
        """Return all words of weights [words, bytes]: those of the layers, then the LM head's."""
        p = self.p.kelle
        parts = [layer_beats(layer, p) for layer in self.layers]
        if self.vocabulary is not None:
            parts.append(matrix_beats(self.vocabulary.filled(p.head_size), p))
        size = self.p.word_bytes_of_weights
        return np.concatenate([part.reshape(-1, size) for part in parts])

    def input_words(self, inputs: Integers) -> Bytes:
        """Return an input of an attention block as words of memory."""
        return np.packbits(state_words(self.p.kelle, inputs), axis=-1, bitorder="little")

    def begin(self, prefills: Sequence[Prefill], models: Sequence[KelleModel]) -> KelleProgram:
        """Return the program that loads the scales, and the cache of each layer."""
        program, p = KelleProgram(self.p), self.p.kelle
        program.load("scales", to_integers(pack(*scale_words(self.layers, p))))
        for layer, (made, model) in enumerate(zip(prefills, models, strict=True)):
            # Rows of slots that are not in use are not refreshed.
            program.load("prefill", to_integers(kept_words(p, made.kept)), layer)
            program.load("rows", to_integers(cache_rows(p, model, made)))
        return program

    def recent_inputs(self, layer: DecoderLayer, tokens: int) -> dict[int, Integers]:
        """Return the inputs of a prefill of so many tokens that may be requested, by position."""
        first = max(0, tokens - self.p.kelle.window - 1)
        return {position: layer.quantised[position] for position in range(first, tokens)}

    def add_token(
        self, program: KelleProgram, position: int, state: Integers, *, predict: bool
    ) -> None:
        """Append a token's steps to a program."""
        words = to_integers(state_words(self.p.kelle, state))
        for number, layer in enumerate(self.layers):
            program.step(
                layer=number,
                position=position,
                epsilon=layer.epsilon,
                state=[] if number else words,
            )
        if predict:
            assert self.vocabulary is not None
            program.predict(self.vocabulary.epsilon)

    def place(self, layer: int, position: int) -> int:
        """Return the address of a layer's input of a token."""
        return input_place(self.p, layer, position)
