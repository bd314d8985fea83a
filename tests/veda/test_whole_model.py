"""VEDA's whole golden model: its schedule, its argmax, and SmolLM2's own words."""

import numpy as np
import pytest

from golden.arith.float_values import codes
from golden.llm.language_model import open_language_model
from golden.veda.decoder_layer import folded
from golden.veda.whole_model import Block, WholeModel, largest, next_block, prompt_blocks
from hdl.arith.float_format import BINARY32
from hdl.catalog import entry_named


@pytest.mark.parametrize("prompt", [1, 2, 5, 9, 10, 33, 40])
@pytest.mark.parametrize("reserved", [0, 3, 8, 32])
def test_prompt_is_read_once_and_in_order(prompt: int, reserved: int) -> None:
    blocks = prompt_blocks(prompt, block=8, budget=12, reserved=reserved)
    positions = [block.first + n for block in blocks for n in range(block.count)]
    assert positions == list(range(prompt))
    assert all(1 <= block.count <= 8 for block in blocks)
    for block in blocks:
        # As a whole or not at all, and what votes is behind the reserved tokens.
        votes = {position >= reserved for position in range(block.first, block.first + block.count)}
        assert votes == {block.vote}
        last = block is blocks[-1]
        assert (block.predict, block.count == 1 or not last) == (last, True)
    assert [block.evictions for block in blocks[:-1]] == [0] * (len(blocks) - 1)
    # The next token finds room within the budget.
    assert blocks[-1].evictions == max(0, prompt - 11)


def test_generated_tokens_keep_the_budget() -> None:
    options = {"budget": 12, "reserved": 3}
    assert next_block(2, cached=2, **options) == Block(
        first=2, count=1, vote=False, evictions=0, predict=True
    )
    assert next_block(10, cached=10, **options).evictions == 0
    for cached in (11, 12):
        assert next_block(40, cached=cached, **options).evictions == 1


def test_largest_is_the_first_of_equals_and_above_every_nan() -> None:
    def token(*numbers: float) -> int:
        return largest(BINARY32, np.array(numbers, np.float32).view(np.uint32).astype(np.uint64))

    nan, infinity = float("nan"), float("inf")
    assert token(1, 3, 2, 3) == 1
    assert token(-0.0, 0.0) == 0
    assert token(nan, -infinity, nan) == 1
    assert token(nan, nan) == 0
    # One unit in the last place, which FP16 does not see.
    assert token(1, 1 + 2.0**-23, 1) == 1


@pytest.mark.full
def test_smollm2_says_what_transformers_says() -> None:
    """Sixteen tokens of a plain prompt, with a cache that holds all."""
    from systola.generation.continuation import reference

    model = open_language_model()
    p = entry_named("veda").parameters("smollm2_vocabulary")
    weights = [folded(model.layer(number)) for number in range(model.shape.layers)]
    golden = WholeModel(p, weights, codes(model.projection()), model.shape.rope_base)
    text = model.tokens_of("The capital of France is")
    prompt, embedding = len(text), codes(model.embedding)
    token = None
    for block in prompt_blocks(prompt, block=p.block, budget=128, reserved=32):
        token = golden.step(block, embedding[text[block.first : block.first + block.count]]).token
    while len(text) < prompt + 16:
        assert token is not None
        text.append(token)
        block = next_block(len(text) - 1, cached=len(text) - 1, budget=128, reserved=32)
        token = golden.step(block, embedding[text[-1:]]).token
    assert text[prompt:] == reference(model, text[:prompt], 16)
