"""Tokenizer of SmolLM: byte-level byte-pair encoding with the tables of its GGUF file."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

CONTROL = 3
"""The type of a special token, such as ``<|im_start|>``, in a GGUF file."""

SPACE = r"[^\S\x1c-\x1f]"
"""White space of Unicode, to which Python's ``\\s`` adds four control characters."""

WORDS = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[^\W_]+| ?(?:[^\s\w]|[_\x1c-\x1f])+"
    rf"|{SPACE}+(?![\S\x1c-\x1f])|{SPACE}+"
)
"""GPT-2's rule for splitting text. `words` splits off numeric characters first."""


class BytePairs:
    """A tokenizer.

    Parameters
    ----------
    fields : Mapping
        The metadata of a GGUF file whose ``tokenizer.ggml.pre`` is ``smollm``.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        tokens: list[str] = fields["tokenizer.ggml.tokens"]
        kinds: list[int] = fields["tokenizer.ggml.token_type"]
        merges: list[str] = fields["tokenizer.ggml.merges"]
        self._numbers = {token: number for number, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
        self._special = re.compile(f"({'|'.join(map(re.escape, special))})")
        self._encoded = cache(self._encode)

    def __call__(self, text: str) -> np.ndarray:
        """Return the token numbers of a text, int32. Special tokens in it have their own number."""
        numbers: list[int] = []
        for index, part in enumerate(self._special.split(text)):
            if index % 2:
                numbers.append(self._numbers[part])
            else:
                for word in words(part):
                    numbers += self._encoded(word)
        return np.array(numbers, dtype=np.int32)

    def _encode(self, word: str) -> list[int]:
        """Return the token numbers of one word, without bytes that the vocabulary lacks."""
        parts = [name for byte in word.encode() if (name := BYTES[byte]) in self._numbers]
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged, index = [], 0
            while index < len(parts):
                joined = tuple(parts[index : index + 2]) == best
                merged.append("".join(best) if joined else parts[index])
                index += 2 if joined else 1
            parts = merged
        return [self._numbers[part] for part in parts]


def words(text: str) -> Iterator[str]:
    """Yield the parts of a text that are encoded separately. A numeric character is one part."""
    start = 0
    for index, character in enumerate(text):
        if unicodedata.category(character)[0] == "N":
            yield from WORDS.findall(text[start:index])
            yield character
            start = index + 1
    yield from WORDS.findall(text[start:])


def _byte_names() -> list[str]:
    """Return the character that denotes each byte in the vocabulary.

    A byte that is no printable Latin-1 character has a character from 0x100 upwards.
    """
    names, spare = [], 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or (byte >= 0xA1 and byte != 0xAD):
            names.append(chr(byte))
        else:
            names.append(chr(spare))
            spare += 1
    return names


BYTES = _byte_names()
