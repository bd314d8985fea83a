"""The argmax's model against the order of numbers, and the parameters' rules."""

import re
from dataclasses import replace

import numpy as np
import pytest

from golden.p3llm.npu.logit_argmax import largest_so_far, logit_argmax
from hdl.catalog import entry_named
from hdl.p3llm.npu.logit_argmax import LogitArgmaxParameters
from hdl.p3llm.presets import PRESETS


def drawn() -> list[np.ndarray]:
    """Return texts of both signs, of one sign, with ties, with zeros of both signs."""
    rng = np.random.default_rng(1)
    texts = [rng.normal(size=40) for _ in range(100)]
    texts += [-np.abs(text) for text in texts]
    texts += [rng.integers(-3, 0, 40) for _ in range(100)]
    texts += [np.where(rng.random(40) < 0.5, 0.0, -0.0) for _ in range(100)]
    texts += [np.full(40, -0.0)]
    return [text.astype(np.float32) for text in texts]


def first_of_the_largest(text: np.ndarray) -> int:
    """Return the argmax by comparing float64 numbers, one by one, and signs of zeros."""
    best = 0
    for token, number in enumerate(text.astype(np.float64).tolist()):
        zeros = number == text[best] == 0 and np.signbit(text[best]) and not np.signbit(number)
        if number > text[best] or zeros:
            best = token
    return best


def test_the_first_of_the_largest() -> None:
    for text in drawn():
        token, code = logit_argmax(text)
        assert token == first_of_the_largest(text)
        assert code == text.view(np.uint32)[token]
        # The order of numbers, except that a zero may have either sign.
        assert text[token] == text.max() and not (text[:token] > text[token]).any()


def test_the_largest_so_far_is_that_of_each_beginning() -> None:
    for text in drawn():
        tokens, codes = largest_so_far(text)
        for count, found in enumerate(zip(tokens.tolist(), codes.tolist(), strict=True), 1):
            assert found == logit_argmax(text[:count])


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        ([1.0, 2.0, 2.0], (1, 0x40000000)),
        ([-1.0, -0.0, 0.0, 0.0], (2, 0)),
        ([-3.0, -2.0, -0.0, -0.0], (2, 0x80000000)),
        ([-2.0, -1.5, -1.5, -np.inf], (1, 0xBFC00000)),
        ([1e-45, 3.4e38, np.inf], (2, 0x7F800000)),
    ],
)
def test_argmax_of_examples(sums: list[float], expected: tuple[int, int]) -> None:
    assert logit_argmax(np.array(sums, np.float32)) == expected


def test_presets_are_those_of_layers() -> None:
    """With the vocabularies of SmolLM2 and, at the paper's dimensions, of Llama-3.1."""
    entry = entry_named("logit_argmax")
    assert entry.parameters("tiny") == PRESETS["tiny"].argmax
    smollm2 = replace(PRESETS["smollm2"], vocabulary_size=49152)
    assert entry.parameters("smollm2") == LogitArgmaxParameters() == smollm2.argmax
    paper = replace(PRESETS["paper"], vocabulary_size=128256, batch=8)
    assert entry.parameters("paper") == paper.argmax
    assert LogitArgmaxParameters(lanes=4, vocabulary=405).slices == 102


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"requests": 9}, "requests must be an integer from 1 to 8, not 9"),
        ({"vocabulary": 0}, "vocabulary must be an integer from 1 to 262144, not 0"),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LogitArgmaxParameters(**changes)
