"""Token numbers equal those of the tokenizer of `transformers`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.llm import model, text_named
from golden.llm.texts import TEXTS

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
PARTS = st.one_of(
    st.text(),
    st.text("ab' 1\n\t_-ſﬁ½²٣一\x1d\x85", max_size=8),
    st.sampled_from((*SPECIAL, "don't", "'S", " 2024", "  x", "\u00a0y", "e\u0301")),
)


def theirs(text: str) -> list[int]:
    return model._tokenizer()(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_tokens_of_transformers(name: str) -> None:
    text = text_named(name)
    found = model.load_tokens(text)
    assert found.dtype == np.int32
    assert found.tolist() == theirs(text)


@settings(max_examples=300)
@given(st.lists(PARTS, max_size=5).map("".join))
def test_any_text_has_the_tokens_of_transformers(text: str) -> None:
    tokens = model._byte_pairs(model.find_gguf())
    assert tokens(text).tolist() == theirs(text)
