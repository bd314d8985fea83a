"""Small random models, and runs of a system over them."""

import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import LanguageModel
from hdl.model_shape import ModelShape
from systola.generation.run import Interrupted, Run
from systola.generation.system import System

SHAPE = ModelShape(
    hidden_size=18,
    intermediate_size=12,
    heads=4,
    kv_heads=2,
    head_size=4,
    layers=2,
    vocabulary_size=45,
    context_length=64,
    rope_base=10_000.0,
    norm_epsilon=1e-5,
)
"""Two heads share keys and values, and the feed-forward layer does not fill the arrays."""

PROMPT = [3, 1, 4, 1, 5]


class RandomModel(LanguageModel):
    """A model of normal numbers, whose text is its tokens' numbers."""

    def tokens_of(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def text_of(self, tokens: list[int]) -> str:
        return " ".join(str(token) for token in tokens)


class WordModel(RandomModel):
    """The same, with a number for each word of a text."""

    def tokens_of(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) % self.shape.vocabulary_size for word in text.split()]


def random_model(seed: int = 0, **changes: Any) -> RandomModel:
    s = ModelShape(**(asdict(SHAPE) | changes))
    rng = np.random.default_rng(seed)
    inner = s.heads * s.head_size
    shapes = {
        "query": (inner, s.hidden_size),
        "key": (s.kv_heads * s.head_size, s.hidden_size),
        "value": (s.kv_heads * s.head_size, s.hidden_size),
        "output": (s.hidden_size, inner),
        "gate": (s.intermediate_size, s.hidden_size),
        "up": (s.intermediate_size, s.hidden_size),
        "down": (s.hidden_size, s.intermediate_size),
    }
    tensors: dict[tuple[int | None, str], Any] = {}
    for layer in range(s.layers):
        for name, shape in shapes.items():
            tensors[layer, name] = rng.normal(size=shape) / np.sqrt(shape[1])
        for name in ("input_norm", "feed_forward_norm"):
            tensors[layer, name] = rng.normal(1, 0.1, s.hidden_size)
    tensors[None, "embedding"] = rng.normal(size=(s.vocabulary_size, s.hidden_size))
    tensors[None, "projection"] = rng.normal(size=(s.vocabulary_size, s.hidden_size))
    tensors[None, "final_norm"] = rng.normal(1, 0.1, s.hidden_size)
    return RandomModel(
        Path("random.gguf"),
        f"seed {seed} " + "0" * 12,
        s,
        frozenset(),
        lambda layer, name: tensors[layer, name].astype(np.float32),
    )


def predicted(system: System, prompt: list[int], tokens: list[int]) -> list[int]:
    """Return the tokens with the largest logits of `System.logits`, after prompt and tokens."""
    logits = system.logits([*prompt, *tokens[:-1]])
    return logits[len(prompt) - 1 :].argmax(axis=1).tolist()


def running(system: System, prompt: list[int], tokens: int) -> Run:
    """Return a run of a system, which is prepared here; its folder is the system's."""
    system.folder.mkdir(parents=True, exist_ok=True)
    system.prepare(lambda words: None)
    return Run(
        system=system,
        model=system.model,
        prompt=prompt,
        tokens=tokens,
        settings=system.settings,
        folder=system.folder,
        about={},
    )


def generated(run: Run) -> list[int]:
    tokens: list[int] = []
    run.go(tokens.append, lambda block, progress: None)
    assert tokens == run.progress.tokens
    return tokens


def interrupted(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    before: Callable[..., None] = lambda *arguments: None,
) -> None:
    """Interrupt a run in the block after `blocks`; the message states how to continue."""
    own, done = run.system.run, []

    def interrupting(*arguments: Any) -> Any:
        done.append(arguments)
        if len(done) > blocks:
            before(*arguments)
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(run.system, "run", interrupting)
    with pytest.raises(Interrupted, match="the same command continues from there"):
        generated(run)
