"""A run: a prompt and its continuation through a system, with a checkpoint after each block."""

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
from systola.generation.system import Block, BlockProgress, Outcome, Settings, System


@dataclass(kw_only=True)
class Progress:
    """The results of a run so far.

    Parameters
    ----------
    tokens : list[int]
        Generated tokens.
    done : int
        Number of processed tokens of prompt and continuation.
    figures : list[dict[str, Any]]
        First token, number of tokens and `Outcome` of each block, and its use of an external
        memory.
    """

    tokens: list[int] = field(default_factory=list)
    done: int = 0
    figures: list[dict[str, Any]] = field(default_factory=list)


class Interrupted(Exception):
    """A run was interrupted; the message specifies where the next one continues."""


@dataclass(kw_only=True, eq=False)
class Run:
    """A prompt, the number of tokens to generate, and the system that generates them.

    Parameters
    ----------
    system : System
        The accelerator, prepared.
    model : LanguageModel
        The model.
    prompt : list[int]
        The prompt's tokens.
    tokens : int
        Number of tokens to generate; fewer if the text ends.
    settings : Settings
        The system's options.
    folder : Path
        Folder of the system's results; the run's own folder is a subfolder.
    about : dict[str, Any]
        Further entries of the record.
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
        """Name the run's folder by a hash of all that decides the generated tokens."""
        self.identity = {
            "prompt": self.prompt,
            "settings": self.settings.identity,
            **self.system.identity,
        }
        name = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]
        self.home = self.folder / f"run-{name}"
        self.home.mkdir(parents=True, exist_ok=True)
        self.checkpoint = Checkpoint(self.home)

    def go(
        self,
        decided: Callable[[int], None],
        watch: Callable[[Block, BlockProgress], None],
    ) -> None:
        """Generate text; call `decided` with each token as soon as it is known.

        Raises
        ------
        Interrupted
            By Ctrl-C; the message reports the progress that the checkpoint holds.
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
            raise Interrupted(self._interruption()) from None
        finally:
            self.system.end()
        self._record(finished=True)
        self.checkpoint.forget()

    def _blocks(self) -> Any:
        """Yield the remaining blocks, until the text ends or has its length."""
        prompt = self.system.prompt_blocks(len(self.prompt))
        yield from (block for block in prompt if block.first >= self.progress.done)
        while not self.ended:
            yield self.system.next_block(self.progress.done)

    def continuation(self, tokens: list[int]) -> str:
        """Return the text that tokens add to the prompt's; decode both together.

        A token's text can depend on the token before it: some tokenisers drop the space of a first
        word.
        """
        before = self.model.text_of(self.prompt)
        return self.model.text_of(self.prompt + tokens)[len(before) :]

    @property
    def ended(self) -> bool:
        """Whether the text has its length or has ended."""
        tokens = self.progress.tokens
        return len(tokens) >= self.tokens or bool(tokens and tokens[-1] in self.model.stop)

    def _take(
        self,
        block: Block,
        decided: Callable[[int], None],
        watch: Callable[[Block, BlockProgress], None],
    ) -> None:
        """Run a block; write the checkpoint before `decided` is called."""
        text = self.prompt + self.progress.tokens
        tokens = text[block.first : block.first + block.count]
        external = self.system.external
        before = dict(external.counts) if external else {}
        outcome = self.system.run(block, tokens, lambda moved: watch(block, moved))
        progress = self.progress
        progress.done = block.first + block.count
        progress.figures.append(_figures(block, outcome))
        # Software computes Kelle's prefill, which takes no cycles.
        if external and outcome.cycles:
            progress.figures[-1]["memory"] = external.use(before, outcome.cycles)
        if outcome.token is not None:
            progress.tokens.append(outcome.token)
        self.checkpoint.save(asdict(progress), self.system.state())
        self._record()
        if outcome.token is not None:
            decided(outcome.token)

    def _record(self, *, finished: bool = False) -> None:
        """Write the record."""
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

    def _interruption(self) -> str:
        done, generated = self.progress.done, len(self.progress.tokens)
        if not done:
            return "interrupted before the end of the first block: there is nothing to continue"
        return (
            f"interrupted after {done} processed and {generated} generated tokens; the same "
            "command continues from there"
        )


def _figures(block: Block, outcome: Outcome) -> dict[str, Any]:
    """Return a block's entry in the record."""
    return {"first": block.first, "count": block.count, **asdict(outcome)}


def require_tokens(prompt: list[int], tokens: int, longest: int) -> None:
    """Refuse an empty prompt, and a text longer than the context.

    Raises
    ------
    UserError
        With the rule and the value.
    """
    if not prompt:
        raise UserError("PROMPT must contain at least one token, not be empty")
    if tokens < 1:
        raise UserError(f"TOKENS must be at least 1, not {tokens}")
    if len(prompt) + tokens > longest:
        raise UserError(
            f"PROMPT and TOKENS together must be at most the {longest} positions of the context, "
            f"not {len(prompt)} + {tokens}"
        )
