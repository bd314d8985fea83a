"""A whole language model of the LLaMA kind, out of a GGUF or safetensors file."""

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
"""Tokens of prose on which the steps of integer systems are found."""


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model's dimensions, and its tensors when they are asked for.

    Members
    -------
    file : Path
        The model's file, or the index of its files.
    digest : str
        SHA-256 of all files that decide what the model computes, see `ModelFiles.digest`.
    shape : ModelShape
        Dimensions.
    stop : frozenset of int
        Tokens that end a text.
    tensor : Callable[[int | None, str], numpy.ndarray]
        A layer's tensor by its name here, or one of `embedding`, `final_norm` and `projection`;
        a matrix has a row an output. Heads of queries and keys have as neighbours what the rotary
        embedding turns together.
    """

    file: Path
    digest: str
    shape: ModelShape
    stop: frozenset[int]
    tensor: Callable[[int | None, str], Singles]

    def layer(self, number: int) -> LayerWeights:
        """Return a layer's matrices in float64, folded as `LayerWeights` says."""
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
        """The hidden state that each token begins with, shape (vocabulary, width)."""
        return self.tensor(None, "embedding")

    def projection(self) -> Reals:
        """Return the vocabulary's projection, the final norm folded in: (width, vocabulary)."""
        norm = self.tensor(None, "final_norm").astype(np.float64)
        return self.tensor(None, "projection").astype(np.float64).T * norm[:, np.newaxis]

    def calibration(self, longest: int = CALIBRATION) -> list[int]:
        """Return the text on which steps are found, at most `longest` tokens of it."""
        return self.tokens_of(text_named("prose"))[: min(CALIBRATION, longest)]

    @cached_property
    def _tokenizer(self) -> Any:
        return packaged.tokenizer_of(self.file)

    def tokens_of(self, text: str) -> list[int]:
        """Return a prompt's tokens, with the BOS token if the model's tokenizer adds one.

        A text that already begins with BOS, as chat templates do, gets no second one.

        Raises
        ------
        DataFileError
            The tokenizer is missing or damaged, adds tokens after the text, or gives a number
            that the vocabulary does not have.
        """
        plain, whole = (
            [int(t) for t in self._tokenizer(text, add_special_tokens=special)["input_ids"]]
            for special in (False, True)
        )
        added = whole[: len(whole) - len(plain)]
        if whole != added + plain:
            raise DataFileError(
                f"the tokenizer of {self.file} must add tokens before a prompt only, and makes "
                f"{whole} of {plain}"
            )
        tokens = plain if plain[: len(added)] == added else whole
        if tokens and max(tokens) >= self.shape.vocabulary_size:
            raise DataFileError(
                f"the tokenizer of {self.file} must give tokens below the vocabulary's "
                f"{self.shape.vocabulary_size}, not {max(tokens)}"
            )
        return tokens

    def text_of(self, tokens: list[int]) -> str:
        """Return the text that tokens stand for, special ones left out."""
        # A cleaned-up text changes spaces of earlier tokens, which may have been printed already.
        return self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def open_language_model(file: Path | None = None) -> LanguageModel:
    """Open a model's file, SmolLM2's if none is named.

    Raises
    ------
    DataFileError
        A file is missing or damaged, or has something that the accelerators do not implement.
    """
    if file is None:
        file = packaged.verified_gguf()
    files = model_files(file)
    try:
        contents = (open_gguf if files.gguf else open_safetensors)(files)
    except DataFileError:
        raise
    # What a damaged file makes its reader raise is not documented.
    except Exception as error:
        raise DataFileError(f"{files.named} cannot be read, and may be damaged: {error}") from error
    return LanguageModel(files.named, files.digest, contents.shape, contents.stop, contents.tensor)
