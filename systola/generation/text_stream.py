"""The text of a growing list of tokens, for output as it is generated."""

import unicodedata
from collections.abc import Callable

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokeniser decodes the first bytes of an unfinished character to."""


class TextStream:
    """Returns each character of a text once, as soon as its last byte is known.

    A token may hold a part of a character: an emoji of four bytes takes up to four tokens. Until
    the last one, the tokeniser decodes the text with a replacement character at its end.

    Parameters
    ----------
    text_of : Callable[[list[int]], str]
        Decodes tokens from the beginning of the text.

    Members
    -------
    shown : str
        All text that `add` and `end` have returned.
    """

    def __init__(self, text_of: Callable[[list[int]], str]) -> None:
        self._text_of = text_of
        self._tokens: list[int] = []
        self.shown = ""

    def add(self, token: int) -> str:
        """Return the characters that a token finishes."""
        self._tokens.append(token)
        return self._new(self._text_of(self._tokens).rstrip(UNFINISHED))

    def end(self) -> str:
        """Return the rest of the text; an unfinished character is a replacement character."""
        return self._new(self._text_of(self._tokens))

    def _new(self, text: str) -> str:
        # Compare lengths, not contents: what is printed once cannot be replaced any more.
        new = text[len(self.shown) :]
        self.shown += new
        return new


def printable(text: str) -> str:
    r"""Return a text for a terminal: control characters as escapes such as ``\x1b``.

    Line feeds and tabs stay. Surrogates, which no encoding accepts, become escapes too.
    """
    return "".join(
        repr(c)[1:-1] if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs") else c
        for c in text
    )
