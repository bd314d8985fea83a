"""A complete language model of the LLaMA architecture, from a GGUF or safetensors file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from golden.llm import model as packaged
from golden.llm.gguf_file import open_gguf
from golden.llm.layers import LayerWeights, Reals
from golden.llm.model_files import DataFileError, model_files
from golden.llm.safetensors_file import open_safetensors
from golden.llm.stored_tensors import Singles
from golden.llm.texts import text_named
from hdl.model_shape import ModelShape

CALIBRATION = 256
"""Number of tokens of prose that calibrate the quantisation steps of integer systems."""


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model's dimensions, and a function that reads its tensors.

    Members
    -------
    file : Path
        The model's file, or the index of its files.
    digest : str
        SHA-256 of all files that determine the model's function, see `ModelFiles.digest`.
    shape : ModelShape
        Dimensions of the model.
    stop : frozenset of int
        Tokens that end a text.
    tensor : Callable[[int | None, str], numpy.ndarray]
        Function from a layer and a name, or None and `embedding`, `final_norm` or `projection`, to
        the tensor. A matrix has one row per output. In heads of queries and keys, the two elements
        of a rotary pair are adjacent.
    """

    file: Path
    digest: str
    shape: ModelShape
    stop: frozenset[int]
    tensor: Callable[[int | None, str], Singles]

    def layer(self, number: int) -> LayerWeights:
        """Return a layer's matrices in float64, folded as `LayerWeights` specifies."""
        s = self.shape

        def matrix(name: str, norm: str = "") -> Reals:
            weight = self.tensor(number, name).astype(np.float64).T
            own = self.tensor(number, norm).astype(np.float64)[:, np.newaxis] if norm else 1.0
            return weight * own

        def heads(name: str) -> Reals:
            return matrix(name, "input_norm").reshape(s.hidden_size, -1, s.head_size)

        return LayerWeights(
            query=heads("query") / np.sqrt(s.head_size),
            key=heads("key"),
            value=heads("value"),
            output=matrix("output").reshape(s.heads, s.head_size, s.hidden_size),
            gate=matrix("gate", "feed_forward_norm"),
            up=matrix("up", "feed_forward_norm"),
            down=matrix("down"),
        )

    @cached_property
    def embedding(self) -> Singles:
        """Initial hidden state of each token, shape (vocabulary_size, hidden_size)."""
        return self.tensor(None, "embedding")

    def projection(self) -> Reals:
        """Return the LM head with the final norm folded in: (hidden_size, vocabulary_size)."""
        norm = self.tensor(None, "final_norm").astype(np.float64)
        return self.tensor(None, "projection").astype(np.float64).T * norm[:, np.newaxis]

    def calibration(self, longest: int = CALIBRATION) -> list[int]:
        """Return the calibration text for quantisation steps, at most `longest` tokens."""
        return self.tokens_of(text_named("prose"))[: min(CALIBRATION, longest)]

    @cached_property
    def _tokenizer(self) -> Any:
        return packaged.tokenizer_of(self.file)

    def tokens_of(self, text: str) -> list[int]:
        """Return a prompt's tokens, with the BOS token if the model's tokenizer adds one.

        A text that already begins with BOS, such as one from a chat template, gets no second BOS.

        Raises
        ------
        DataFileError
            The tokenizer is missing or corrupted, adds tokens after the text, or returns a number
            that is not in the vocabulary.
        """
        plain, whole = (
            [int(t) for t in self._tokenizer(text, add_special_tokens=special)["input_ids"]]
            for special in (False, True)
        )
        added = whole[: len(whole) - len(plain)]
        if whole != added + plain:
            raise DataFileError(
                f"the tokenizer of {self.file} must add tokens only before a prompt, not convert "
                f"{plain} to {whole}"
            )
        tokens = plain if plain[: len(added)] == added else whole
        if tokens and max(tokens) >= self.shape.vocabulary_size:
            raise DataFileError(
                f"the tokenizer of {self.file} must return tokens below the vocabulary_size "
                f"{self.shape.vocabulary_size}, not {max(tokens)}"
            )
        return tokens

    def text_of(self, tokens: list[int]) -> str:
        """Return the text of tokens, without special tokens."""
        # The clean-up would change spaces of earlier tokens, which may already be printed.
        return self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def open_language_model(file: Path | None = None) -> LanguageModel:
    """Open a model's file; SmolLM2's by default.

    Raises
    ------
    DataFileError
        A file is missing or corrupted, or requires a function that the accelerators do not
        implement.
    """
    if file is None:
        file = packaged.verified_gguf()
    files = model_files(file)
    try:
        contents = (open_gguf if files.gguf else open_safetensors)(files)
    except DataFileError:
        raise
    # The readers do not document their exceptions for corrupted files.
    except Exception as error:
        raise DataFileError(
            f"{files.named} cannot be read and may be corrupted: {error}"
        ) from error
    return LanguageModel(files.named, files.digest, contents.shape, contents.stop, contents.tensor)
