"""The packaged tokenizer cuts text as SmolLM's was trained to: each digit is a piece by itself."""

import re

import pytest

from golden.llm import model, text_named
from golden.llm.texts import TEXTS

PIECES = {
    "was.\n\n1. The": ["was", ".", "ĊĊ", "1", ".", "ĠThe"],
    "in 2024": ["in", "Ġ", "2", "0", "2", "4"],
    "the  50 it's": ["the", "ĠĠ", "5", "0", "Ġit", "'s"],
}


def test_digits_are_pieces() -> None:
    tokenizer = model._tokenizer()
    numbers = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in PIECES]
    assert [tokenizer.convert_ids_to_tokens(row) for row in numbers] == list(PIECES.values())


def test_prompts_begin_with_their_own_words() -> None:
    prompt = model._tokenizer()("The capital of France is")
    assert prompt["input_ids"] == [504, 3575, 282, 4649, 314]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_its_parts_between_digits(name: str) -> None:
    # The last quarter of the news has two spaces before a digit.
    parts = [part for part in re.split(r"(\d)", text_named(name)[-90_000:]) if part]
    tokens = model._byte_pairs(model.verified_gguf())
    alone = [number for part in parts for number in tokens(part).tolist()]
    assert tokens("".join(parts)).tolist() == alone
