"""A run: a prompt and its continuation through a system, kept after each block."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from golden.llm.language_model import LanguageModel
from hdl.errors import UserError
from systola.generation.checkpoint import Checkpoint
from systola.generation.system import Block, Moving, Outcome, Settings, System


@dataclass(kw_only=True)
class Progress:
    """What a run has done so far.

    Parameters
    ----------
    tokens : list[int]
        Those that were decided.
    done : int
        Tokens of prompt and continuation that have gone through the layers.
    figures : list[dict[str, Any]]
        Of each block its `Outcome`, and what it was.
    """

    tokens: list[int] = field(default_factory=list)
    done: int = 0
    figures: list[dict[str, Any]] = field(default_factory=list)


class Interrupted(Exception):
    """A run was interrupted; it goes on where its words say."""


@dataclass(kw_only=True, eq=False)
class Run:
    """A prompt, how many tokens shall follow, and the system that finds them.

    Parameters
    ----------
    system : System
        The accelerator, prepared.
    model : LanguageModel
        The model.
    prompt : list[int]
        The prompt's tokens.
    tokens : int
        Tokens to generate at most; fewer if the text ends.
    settings : Settings
        Of the system.
    folder : Path
        Of the system's results; the run has one of its own in it.
    about : dict[str, Any]
        What the record says besides.
    """

    system: System
    model: LanguageModel
    prompt: list[int]
    tokens: int
    settings: Settings
    folder: Path
    about: dict[str, Any]
    progress: Progress = field(default_factory=Progress)
    resumed: int = 0

    def __post_init__(self) -> None:
        """Name the run by all that its words depend on, and find what is left of it."""
        self.identity = {
            "model": self.model.digest,
            "prompt": self.prompt,
            "settings": asdict(self.settings),
            **self.system.identity,
        }
        name = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]
        self.home = self.folder / f"run-{name}"
        self.home.mkdir(parents=True, exist_ok=True)
        self.checkpoint = Checkpoint(self.home)

    def go(
        self,
        decided: Callable[[int], None],
        watch: Callable[[Block, Moving], None],
    ) -> None:
        """Generate; each token is told as soon as it is decided.

        Raises
        ------
        Interrupted
            By Ctrl-C, with what is kept.
        Mismatch
            If the Verilog differs from the golden model.
        """
        kept = self.checkpoint.load()
        state = None
        if kept is not None:
            self.progress = Progress(**kept[0])
            state = kept[1]
            self.resumed = self.progress.done
        self._record()
        try:
            self.system.begin(state)
            for token in self.progress.tokens:
                decided(token)
            for block in self._blocks():
                self._take(block, decided, watch)
        except KeyboardInterrupt:
            raise Interrupted(self._kept_words()) from None
        finally:
            self.system.end()
        self._record(finished=True)
        self.checkpoint.forget()

    def _blocks(self) -> Any:
        """Return the blocks that are still to be done, as long as they are wanted."""
        prompt = self.system.prompt_blocks(len(self.prompt))
        yield from (block for block in prompt if block.first >= self.progress.done)
        while not self.ended:
            yield self.system.next_block(self.progress.done)

    def continuation(self, tokens: list[int]) -> str:
        """Return what tokens add to the prompt's text; some belong to the word before."""
        before = self.model.text_of(self.prompt)
        return self.model.text_of(self.prompt + tokens)[len(before) :]

    @property
    def ended(self) -> bool:
        """Whether no further token is wanted."""
        tokens = self.progress.tokens
        return len(tokens) >= self.tokens or bool(tokens and tokens[-1] in self.model.stop)

    def _take(
        self,
        block: Block,
        decided: Callable[[int], None],
        watch: Callable[[Block, Moving], None],
    ) -> None:
        """Run a block, and keep what came of it before anyone hears of it."""
        text = self.prompt + self.progress.tokens
        tokens = text[block.first : block.first + block.count]
        outcome = self.system.run(block, tokens, lambda moving: watch(block, moving))
        progress = self.progress
        progress.done = block.first + block.count
        progress.figures.append(_figures(block, outcome))
        if outcome.token is not None:
            progress.tokens.append(outcome.token)
        self.checkpoint.save(asdict(progress), self.system.state())
        self._record()
        if outcome.token is not None:
            decided(outcome.token)

    def _record(self, *, finished: bool = False) -> None:
        """Write what repeats the run, and what came of it."""
        self.checkpoint.write_record(
            {
                **self.about,
                **self.identity,
                "tokens": self.tokens,
                "finished": finished,
                "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "text": self.continuation(self.progress.tokens),
                "generated": self.progress.tokens,
                "blocks": self.progress.figures,
            }
        )

    def _kept_words(self) -> str:
        done, words = self.progress.done, len(self.progress.tokens)
        if not done:
            return "interrupted before the first block was done: nothing is kept, and nothing lost"
        return (
            f"interrupted; {done} tokens have gone through the layers and {words} are decided: the "
            "same command goes on from there"
        )


def _figures(block: Block, outcome: Outcome) -> dict[str, Any]:
    """Return what the record says of a block."""
    return {"first": block.first, "count": block.count, **asdict(outcome)}


def require_tokens(prompt: list[int], tokens: int, longest: int) -> None:
    """Refuse a prompt that is empty, and a text that is longer than the context.

    Raises
    ------
    UserError
        With the rule and the value.
    """
    if not prompt:
        raise UserError("PROMPT must hold at least one token, and is empty")
    if tokens < 1:
        raise UserError(f"TOKENS must be at least 1, not {tokens}")
    if len(prompt) + tokens > longest:
        raise UserError(
            f"PROMPT and TOKENS together must be at most the {longest} positions of the context, "
            f"not {len(prompt)} + {tokens}"
        )
