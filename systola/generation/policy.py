"""Text generation with a cache policy: the language model in float32, without an accelerator.

`PolicySystem` has the members of `systola.generation.system.System` that a run uses.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.llm.model import load_model
from golden.policies.registry import Named
from golden.study.decoding import DecodedAttention, Decoder
from golden.study.sample import Sample
from hdl.sources import code_digest
from systola.generation.system import Block


@dataclass(frozen=True, kw_only=True)
class PolicyOutcome:
    """The result of a block.

    Parameters
    ----------
    token : int
        The next token.
    evictions : int
        Tokens that the block evicts, summed over the caches of all layers.
    seconds : float
        Wall-clock time.
    """

    token: int
    evictions: int
    seconds: float


class PolicySystem:
    """The language model in float32, whose caches evict by a policy.

    The prompt is one block, as long as it may be: the policy decides after each of its tokens. No
    Verilog runs, so that there is no `external` memory.

    Parameters
    ----------
    model : LanguageModel
        The model.
    named : Named
        The policy.
    sample : Sample, optional
        Records the decisions of one cache for a comparison.
    """

    external = None

    def __init__(self, model: LanguageModel, named: Named, sample: Sample | None) -> None:
        self.longest = model.shape.context_length
        self.named, self.sample = named, sample
        self._file = model.file
        self._blocks: list[list[int]] = []
        code = code_digest(__name__, without=("systola.generation.system",))
        self.identity = {"model": model.digest, **named.identity(), "code": code}

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return one block."""
        return [Block(first=0, count=tokens, predict=True)]

    def next_block(self, position: int) -> Block:
        """Return the block of the generated token at a position."""
        return Block(first=position, count=1, predict=True)

    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Load the model; process the blocks of a checkpoint again.

        A policy's state has no form that a file could hold. The same blocks have the same results.
        """
        self._attention = DecodedAttention(self.named.policy, self.longest, observer=self.sample)
        self._decoder = Decoder(load_model(self._file), self._attention)
        if state:
            ends = np.cumsum(state["counts"])[:-1]
            for tokens in np.split(state["tokens"], ends):
                self._step(tokens.tolist())

    def run(self, block: Block, tokens: list[int], watch: Callable[[Any], None]) -> PolicyOutcome:
        """Process a block's tokens."""
        began, before = time.monotonic(), self._attention.evicted
        token = self._step(tokens)
        evictions = self._attention.evicted - before
        seconds = time.monotonic() - began
        return PolicyOutcome(token=token, evictions=evictions, seconds=seconds)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the processed tokens, and the number of tokens of each block."""
        counts = [len(tokens) for tokens in self._blocks]
        return {
            "tokens": np.array([token for tokens in self._blocks for token in tokens], np.int64),
            "counts": np.array(counts, np.int64),
        }

    def end(self) -> None:
        """End the run; the process holds nothing that outlives it."""

    def _step(self, tokens: list[int]) -> int:
        self._blocks.append(tokens)
        return self._decoder.step(tokens)
