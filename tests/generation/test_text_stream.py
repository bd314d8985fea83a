"""Text that grows token by token: every character once, and none that changes a terminal."""

import random

import pytest

from systola.generation.text_stream import TextStream, printable

TEXTS = ("plain", "a😀b", "😀😀", "naïve — 你好 👩‍👩‍👧 e\u0301", "\N{REPLACEMENT CHARACTER}x")


def stream_of(pieces: list[bytes]) -> TextStream:
    """Return a stream whose token n is the n-th piece of the text's bytes."""
    return TextStream(lambda tokens: b"".join(pieces[t] for t in tokens).decode(errors="replace"))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(5))
def test_characters_in_pieces_appear_once(text: str, seed: int) -> None:
    """For tokens of one to three bytes, as byte-level tokenisers split an emoji."""
    rng, data, pieces = random.Random(seed), text.encode(), []
    while data:
        size = rng.randint(1, 3)
        pieces.append(data[:size])
        data = data[size:]
    stream = stream_of(pieces)
    parts = [stream.add(token) for token in range(len(pieces))]
    # Until its end, a replacement character of the text itself looks unfinished.
    assert all(
        "".join(parts[: n + 1]) == text[: len("".join(parts[: n + 1]))] for n in range(len(parts))
    )
    assert "".join([*parts, stream.end()]) == text == stream.shown


def test_unfinished_character_at_the_end_is_a_replacement_character() -> None:
    stream = stream_of([b"a", b"\xf0\x9f", b"\x98"])
    assert [stream.add(token) for token in range(3)] == ["a", "", ""]
    assert stream.end() == "\N{REPLACEMENT CHARACTER}"


def test_control_characters_become_escapes() -> None:
    assert printable("a\x1b[31m\r\x07\x9b\x7f\nb\tc") == r"a\x1b[31m\r\x07\x9b\x7f" + "\nb\tc"
    assert printable("\udcff") == r"\udcff"
    assert printable("[red]😀[/]") == "[red]😀[/]"
