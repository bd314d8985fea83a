"""The verb ``perplexity``: the bit-exact model of an accelerator against the model in float32."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hdl.errors import UserError, unknown
from hdl.paths import BUILD, locked, replace_text
from hdl.sources import code_digest
from systola import environment
from systola.generate import (
    SYSTEMS,
    adapter_of,
    cache_settings,
    fitted_system,
    system_options,
)
from systola.options import choose, console, path_shown

if TYPE_CHECKING:
    from golden.llm.language_model import LanguageModel

FLOAT = "float32"
"""The value of TOP for the language model itself."""

NOT_FOLLOWED = ("golden", "hdl.catalog", "systola.generate", "systola.options")
"""Modules whose effect on a loss `Subject.identity` covers, or that have none."""


@click.command()
@click.option("--top", required=True, help=f"{FLOAT}, or accelerator: {', '.join(SYSTEMS)}.")
@click.option("--windows", type=int, default=8, help="Windows of the text, 8 if absent.")
@click.option("--context", type=int, default=256, help="Tokens per window, 256 if absent.")
@click.option("--text", default="news", help="news, prose, or a UTF-8 file; news if absent.")
@system_options
def perplexity(
    top: str,
    windows: int,
    context: int,
    text: str,
    budget: int | None,
    reserved: int | None,
    model: Path | None,
    preset: str | None,
    parameters: Path | None,
    settings: str,
) -> None:
    """Measure the perplexity of an accelerator's bit-exact model and of the model in float32."""
    if top not in (FLOAT, *SYSTEMS):
        raise UserError(unknown("TOP", top, (FLOAT, *SYSTEMS)))
    if windows < 1:
        raise UserError(f"WINDOWS must be at least 1, not {windows}")
    if context < 2:
        raise UserError(f"CONTEXT must be at least 2, not {context}")
    if top == FLOAT and (budget, reserved) != (None, None):
        raise UserError(f"BUDGET and RESERVED are not for {FLOAT}")
    if top == FLOAT and (preset or parameters or settings):
        raise UserError(f"PRESET, PARAMETERS and SET are not for {FLOAT}")
    environment.require("llm", "data", "study")
    # These modules import torch, which takes a second.
    from golden.llm.language_model import open_language_model
    from golden.llm.model import DataFileError

    system_class = None if top == FLOAT else adapter_of(top)
    kept = system_class and cache_settings(system_class, budget, reserved)
    try:
        with console.status("opening the model"):
            language = open_language_model(model)
            tokens = language.tokens_of(_text(text))
    except DataFileError as error:
        raise UserError(str(error)) from error
    cut = _windows(tokens, windows, context)
    subjects: list[Subject] = [FloatModel(language)]
    if system_class:
        chosen = choose(top, preset, parameters, settings)
        system = fitted_system(system_class, language, chosen, kept)
        subjects.append(GoldenModel(system))
    for subject in subjects:
        if context > subject.longest:
            raise UserError(
                f"CONTEXT must be at most the {subject.longest} positions of {subject.name}, "
                f"not {context}"
            )
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bars:
        losses = [_losses(subject, cut, bars) for subject in subjects]
    measured = Perplexity(
        top=top,
        identity=subjects[-1].identity,
        text=text,
        context=context,
        losses=losses[-1],
        float_losses=losses[0],
    )
    console.print(measured.table())
    name = hashlib.sha256(repr(measured).encode()).hexdigest()[:12]
    file = BUILD / "perplexity" / f"{top}-{name}.json"
    replace_text(file, json.dumps(measured.record(), indent=1) + "\n")
    console.print(f"wrote {path_shown(file)}", markup=False)


class Subject(Protocol):
    """What predicts the tokens of a window.

    Members
    -------
    name : str
        Name for progress and messages.
    longest : int
        The longest window, in tokens.
    identity : dict[str, Any]
        All that decides the logits, besides the tokens.
    """

    name: str
    longest: int
    identity: dict[str, Any]

    def prepare(self, report: Callable[[str], None]) -> None:
        """Do once what all windows need."""
        ...

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Return the logits after each token, shape (tokens, vocabulary_size)."""
        ...


class FloatModel:
    """The language model itself in `transformers`: float32, with a full cache."""

    name = FLOAT

    def __init__(self, model: "LanguageModel") -> None:
        self._model = model
        self.longest = model.shape.context_length
        self.identity = {"model": model.digest, "code": code_digest("golden.llm.model")}

    def prepare(self, report: Callable[[str], None]) -> None:
        """Load the model."""
        from golden.llm.model import load_model

        self._decoder = load_model(self._model.file)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Return the logits after each token, shape (tokens, vocabulary_size)."""
        import torch

        with torch.inference_mode():
            return self._decoder(torch.tensor([tokens])).logits[0].double().numpy()


class GoldenModel:
    """The bit-exact model of an accelerator, prepared as for the verb ``generate``."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self.name, self.longest = system.top, system.longest
        self.identity = system.golden_identity

    def prepare(self, report: Callable[[str], None]) -> None:
        """Build the golden model, or take its cached file."""
        self._system.prepare_golden(report)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Return the logits after each token, shape (tokens, vocabulary_size)."""
        return self._system.logits(tokens)


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """Losses of a system and of the model in float32 on the same windows.

    Parameters
    ----------
    top : str
        The system.
    identity : dict[str, Any]
        See `Subject`.
    text : str
        Name or file of the text.
    context : int
        Tokens per window.
    losses, float_losses : list[float]
        Mean negative log-likelihood of each window, in nats/token.
    """

    top: str
    identity: dict[str, Any]
    text: str
    context: int
    losses: list[float]
    float_losses: list[float]

    def record(self) -> dict[str, Any]:
        """Return all members, the perplexities, and the mean loss with its standard error."""
        mean, error = mean_and_error(self.losses)
        added, added_error = mean_and_error(np.subtract(self.losses, self.float_losses))
        return asdict(self) | {
            "tokens": len(self.losses) * (self.context - 1),
            "perplexity": math.exp(mean),
            "float_perplexity": math.exp(mean_and_error(self.float_losses)[0]),
            "loss": mean,
            "loss_error": error,
            "added_loss": added,
            "added_loss_error": added_error,
        }

    def table(self) -> Table:
        """Return the table for the console."""
        found = self.record()
        table = Table(title=f"perplexity of {self.top}", show_header=False)
        windows = len(self.losses)
        table.add_row("text", f"{self.text}: {windows} windows of {self.context} tokens")
        table.add_row("perplexity", f"{found['perplexity']:.4f}")
        table.add_row("loss", _interval(found["loss"], found["loss_error"]))
        if self.top != FLOAT:
            table.add_row("perplexity, float32", f"{found['float_perplexity']:.4f}")
            added = _interval(found["added_loss"], found["added_loss_error"])
            table.add_row("loss over float32", added)
        return table


def mean_and_error(values: Any) -> tuple[float, float | None]:
    """Return the mean of values and its standard error, which one value does not give."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else None
    return float(np.mean(values)), error


def _interval(mean: float, error: float | None) -> str:
    """Return a loss with its standard error for the table."""
    return f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}") + " nats/token"


def _text(name: str) -> str:
    """Return the text that TEXT names."""
    from golden.llm.texts import TEXTS, text_named
    from hdl.paths import expanded

    if name in TEXTS:
        return text_named(name)
    file = expanded(name, "TEXT")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"TEXT must be UTF-8; {file} is not at byte {error.start}") from None
    except OSError as error:
        names = ", ".join(TEXTS)
        raise UserError(f"TEXT must be {names} or a file; {file}: {error.strerror}") from None


def _windows(tokens: list[int], windows: int, context: int) -> list[list[int]]:
    """Return the first windows of a text."""
    most = len(tokens) // context
    if windows > most:
        raise UserError(
            f"WINDOWS must be at most {most}, the whole windows of {context} tokens in the text "
            f"of {len(tokens)}, not {windows}"
        )
    return [tokens[first * context :][:context] for first in range(windows)]


def window_loss(logits: NDArray[np.floating], tokens: list[int]) -> float:
    """Return the mean negative log-likelihood of all tokens except the first, in nats/token."""
    scores = logits[:-1].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-chances[np.arange(len(tokens) - 1), tokens[1:]].mean())


def _losses(subject: Subject, windows: list[list[int]], bars: Progress) -> list[float]:
    """Return the loss of each window in nats/token; losses of earlier runs are kept."""
    from golden.llm.store import TensorStore

    store = TensorStore(BUILD / "perplexity" / "windows")
    task = bars.add_task(f"windows by {subject.name}", total=len(windows))
    code = code_digest(__name__, without=NOT_FOLLOWED)
    prepared, losses = False, []
    for window in windows:
        inputs = repr([subject.identity, code, window])
        group = hashlib.sha256(inputs.encode()).hexdigest()[:16]
        if not store.intact(group):
            if not prepared:
                subject.prepare(lambda words: bars.update(task, description=words))
                prepared = True
                bars.update(task, description=f"windows by {subject.name}")
            loss = window_loss(subject.logits(window), window)
            with locked(store.folder / "lock"):
                store.write(group, {"loss": np.array(loss)})
        losses.append(float(store.read(group, "loss")))
        bars.advance(task)
    return losses


COMMANDS: tuple[click.Command, ...] = (perplexity,)
"""What `systola.cli` adds to its own verbs."""
