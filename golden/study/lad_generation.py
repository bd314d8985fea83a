"""Greedy text generation by a model with a given attention function."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from golden.llm import text_named
from golden.llm.model import load_tokens
from golden.study.attention import attending

REQUEST = "<|im_start|>user\nSummarize this article in your own words:\n"
ANSWER = "<|im_end|>\n<|im_start|>assistant\n"


def continued(count: int, tokens: int, skip: int) -> np.ndarray:
    """Return `count` news passages [count, tokens] for the model to continue."""
    text = load_tokens(text_named("news"))
    return text[skip : skip + count * tokens].reshape(count, tokens)


def requested(count: int, tokens: int) -> np.ndarray:
    """Return requests in the model's chat format [count, tokens], truncated to one length.

    Each request contains several consecutive articles from the end of the news text.
    """
    request, answer = load_tokens(REQUEST), load_tokens(ANSWER)
    room = tokens - len(request) - len(answer)
    articles = text_named("news").splitlines()
    prompts = []
    for number in range(count):
        # An article has 250 tokens on average, so eight of them fill the prompt.
        rows = articles[len(articles) - (number + 1) * 8 : len(articles) - number * 8]
        passage = load_tokens("\n".join(rows))[:room]
        prompts.append(np.concatenate([request, passage, answer]))
    return np.stack(prompts)


def generate(
    model: Any,
    prompts: np.ndarray,
    count: int,
    attention: Any = None,
    *,
    done: Callable[[], None] | None = None,
) -> np.ndarray:
    """Return the argmax tokens [prompts, count], generated sequentially.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    prompts : numpy.ndarray
        Token numbers [prompts, tokens].
    count : int
        Tokens to generate.
    attention : Callable, optional
        Replacement for the model's own attention.
    done : Callable, optional
        Called after each token.
    """
    from transformers import DynamicCache

    tokens = torch.tensor(prompts, dtype=torch.long)
    cache, generated = DynamicCache(), []
    with torch.inference_mode(), attending(model, attention) if attention else nullcontext():
        for _ in range(count):
            states = model.model(input_ids=tokens, past_key_values=cache, use_cache=True)
            logits = model.lm_head(states.last_hidden_state[:, -1])
            tokens = logits.argmax(-1, keepdim=True)
            generated.append(tokens[:, 0].numpy())
            if done:
                done()
    return np.stack(generated, axis=1)
