"""The verb ``perplexity``: an accelerator's arithmetic, or a cache policy, against float32."""

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
    named_policy,
    system_options,
)
from systola.options import choose, console, path_shown, require_one

if TYPE_CHECKING:
    from golden.llm.language_model import LanguageModel
    from golden.policies.registry import Named

FLOAT = "float32"
"""The value of TOP for the language model itself."""

GROUPS = ("llm", "data", "study")
"""The groups of packages that a measurement needs."""

NOT_FOLLOWED = ("golden", "hdl.catalog", "systola.generate", "systola.options")
"""Modules whose effect on a loss `Subject.identity` covers, or that have none."""


def text_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose the windows of a text."""
    options = (
        click.option("--windows", type=int, default=8, help="Windows of the text, 8 if absent."),
        click.option("--context", type=int, default=256, help="Tokens per window, 256 if absent."),
        click.option(
            "--text", default="news", help="news, prose, or a UTF-8 file; news if absent."
        ),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


@click.command()
@click.option("--top", help=f"{FLOAT}, or accelerator: {', '.join(SYSTEMS)}.")
@click.option("--policy", help="Cache policy of the model in float32: a name, or a file (.py).")
@text_options
@system_options
def perplexity(
    top: str | None,
    policy: str | None,
    windows: int,
    context: int,
    text: str,
    budget: int | None,
    reserved: int | None,
    model: Path | None,
    preset: str | None,
    parameters: Path | None,
    settings: str,
    retention: str | None,
) -> None:
    """Measure the perplexity of an accelerator or a cache policy, and of the model in float32."""
    require_one(top, policy)
    if top not in (None, FLOAT, *SYSTEMS):
        raise UserError(unknown("TOP", top, (FLOAT, *SYSTEMS)))
    if top == FLOAT and (budget, reserved) != (None, None):
        raise UserError(f"BUDGET and RESERVED are not for {FLOAT}")
    if (policy is not None or top == FLOAT) and (preset or parameters or settings):
        raise UserError(f"PRESET, PARAMETERS and SET are not for {policy or FLOAT}")
    if retention is not None and top not in SYSTEMS:
        raise UserError(f"RETENTION is not for {policy or FLOAT}")
    environment.require(*GROUPS)
    system_class = adapter_of(top) if top in SYSTEMS else None
    kept = system_class and cache_settings(system_class, budget, reserved, retention)
    named = None if policy is None else named_policy(policy, budget, reserved)
    cut = Windows.open(model, text, windows, context)
    reference = FloatModel(cut.model)
    subject: Subject = reference
    if system_class:
        chosen = choose(system_class.top, preset, parameters, settings)
        subject = GoldenModel(fitted_system(system_class, cut.model, chosen, kept))
    if named:
        subject = PolicyModel(reference, named)
    with progress_bars() as bars:
        measured = measure(subject, reference, cut, bars)
    console.print(measured.table())
    console.print(f"wrote {path_shown(measured.write(subject.stem))}", markup=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of a text, and the model that reads them.

    Parameters
    ----------
    model : LanguageModel
        The model.
    text : str
        Name or file of the text.
    context : int
        Tokens per window.
    tokens : list[list[int]]
        Tokens of each window.
    """

    model: "LanguageModel"
    text: str
    context: int
    tokens: list[list[int]]

    @classmethod
    def open(cls, file: Path | None, text: str, windows: int, context: int) -> "Windows":
        """Open a model, and return the first windows of a text.

        Raises
        ------
        UserError
            If the model or the text cannot be read, or has too few tokens.
        """
        # These modules import torch, which takes a second.
        from golden.llm.language_model import open_language_model
        from golden.llm.model import DataFileError

        if windows < 1:
            raise UserError(f"WINDOWS must be at least 1, not {windows}")
        if context < 2:
            raise UserError(f"CONTEXT must be at least 2, not {context}")
        try:
            with console.status("opening the model"):
                model = open_language_model(file)
                tokens = model.tokens_of(_text(text))
        except DataFileError as error:
            raise UserError(str(error)) from error
        most = len(tokens) // context
        if windows > most:
            raise UserError(
                f"WINDOWS must be at most {most}, the whole windows of {context} tokens in the "
                f"text of {len(tokens)}, not {windows}"
            )
        cut = [tokens[first * context :][:context] for first in range(windows)]
        return cls(model=model, text=text, context=context, tokens=cut)


def progress_bars() -> Progress:
    """Return the progress bars of measurements, one per subject."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


Arrays = dict[str, NDArray[Any]]
Tick = Callable[[float], None]
"""Called with the share of a window that is done since the last call."""


class Subject(Protocol):
    """What predicts the tokens of a window.

    Members
    -------
    name : str
        Name for progress and messages.
    stem : str
        First part of the name of its results' files.
    reference : str
        Name of the model in float32, for the table.
    longest : int
        The longest window, in tokens.
    identity : dict[str, Any]
        All that decides the logits, besides the tokens.
    """

    name: str
    stem: str
    reference: str
    longest: int
    identity: dict[str, Any]

    def prepare(self, report: Callable[[str], None]) -> None:
        """Do once what all windows need."""
        ...

    def window(self, tokens: list[int], tick: Tick) -> Arrays:
        """Return `loss` in nats/token, and what else is kept of the window."""
        ...


class FloatModel:
    """The language model itself in `transformers`: float32, with a full cache."""

    name = stem = reference = FLOAT

    def __init__(self, model: "LanguageModel") -> None:
        self._model = model
        self.longest = model.shape.context_length
        self.identity = {"model": model.digest, "code": code_digest("golden.llm.model")}

    def prepare(self, report: Callable[[str], None]) -> None:
        """Load the model."""
        from golden.llm.model import load_model

        self.decoder = load_model(self._model.file)

    def window(self, tokens: list[int], tick: Tick) -> Arrays:
        """Return the loss; logits of a part of the tokens are in memory at a time."""
        import torch

        from golden.study.losses import token_losses

        text = torch.tensor(tokens)
        with torch.inference_mode():
            states = self.decoder.model(input_ids=text[None], use_cache=False).last_hidden_state[0]
            return {"loss": token_losses(self.decoder, states, text).mean()}


class PolicyModel:
    """The language model in float32 with a cache policy, by its fast form.

    Parameters
    ----------
    model : FloatModel
        The model with a full cache.
    named : Named
        The policy.
    """

    reference = "full cache"

    def __init__(self, model: FloatModel, named: "Named") -> None:
        self._model, self._policy = model, named.policy
        self.name, self.longest = named.name, model.longest
        self.stem = f"policy-{self.name}"
        code = code_digest("golden.study.losses", "golden.study.sample", "golden.policies.registry")
        self.identity = {**model.identity, **named.identity(), "policies": code}

    def prepare(self, report: Callable[[str], None]) -> None:
        """Load the model, unless it is loaded."""
        if not hasattr(self._model, "decoder"):
            self._model.prepare(report)

    def window(self, tokens: list[int], tick: Tick) -> Arrays:
        """Return the loss, and a comparison of one cache's decisions with other forms.

        Raises
        ------
        UserError
            If the fast form in float64 decides otherwise than the second source.
        """
        from golden.study.losses import measure_losses
        from golden.study.sample import Sample

        decoder, total = self._model.decoder, sum(tokens)
        layers = decoder.config.num_hidden_layers
        sample = Sample(self._policy, total % layers, total, len(tokens))
        losses = measure_losses(
            decoder,
            np.array([tokens]),
            [self._policy],
            observer=sample,
            done=lambda: tick(1 / layers),
        )
        checked = sample.check()
        checked.require_equal(self.name)
        parts = (checked.single, checked.exact)
        return {
            "loss": losses.mean(),
            "sample": np.array([[part.evictions, part.same] for part in parts]),
        }


class GoldenModel:
    """The bit-exact model of an accelerator, prepared as for the verb ``generate``."""

    reference = FLOAT

    def __init__(self, system: Any) -> None:
        self._system = system
        self.name, self.longest = system.top, system.longest
        self.stem = self.name
        self.identity = system.golden_identity

    def prepare(self, report: Callable[[str], None]) -> None:
        """Build the golden model, or take its cached file."""
        self._system.prepare_golden(report)

    def window(self, tokens: list[int], tick: Tick) -> Arrays:
        """Return the loss."""
        return {"loss": np.array(window_loss(self._system.logits(tokens), tokens))}


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """Losses of a system and of the model in float32 on the same windows.

    Parameters
    ----------
    top : str
        The system or policy.
    reference : str
        Name of the model in float32, for the table.
    identity : dict[str, Any]
        See `Subject`.
    text : str
        Name or file of the text.
    context : int
        Tokens per window.
    losses, float_losses : list[float]
        Mean negative log-likelihood of each window, in nats/token.
    samples : list
        Per window of a policy: evictions of one cache, and those equal to the second source's;
        the same for the bit-exact form, zeros if there is none.
    """

    top: str
    reference: str
    identity: dict[str, Any]
    text: str
    context: int
    losses: list[float]
    float_losses: list[float]
    samples: list[list[list[int]]]

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

    def write(self, stem: str) -> Path:
        """Write the record to a file whose name begins with a stem; return the file."""
        name = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        file = BUILD / "perplexity" / f"{stem}-{name}.json"
        replace_text(file, json.dumps(self.record(), indent=1) + "\n")
        return file

    def table(self) -> Table:
        """Return the table for the console."""
        found = self.record()
        table = Table(title=f"perplexity of {self.top}", show_header=False)
        windows = len(self.losses)
        table.add_row("text", f"{self.text}: {windows} windows of {self.context} tokens")
        table.add_row("perplexity", f"{found['perplexity']:.4f}")
        loss = interval(found["loss"], found["loss_error"])
        table.add_row("loss", f"{loss} nats/token")
        if self.top != FLOAT:
            table.add_row(f"perplexity, {self.reference}", f"{found['float_perplexity']:.4f}")
            added = interval(found["added_loss"], found["added_loss_error"])
            table.add_row(f"loss over {self.reference}", f"{added} nats/token")
        if self.samples:
            single, exact = np.sum(self.samples, axis=0).tolist()
            table.add_row("evictions equal to float64", "{1:,} of {0:,}".format(*single))
            if exact[0]:
                table.add_row("evictions equal to bit-exact", "{1:,} of {0:,}".format(*exact))
        return table


def mean_and_error(values: Any) -> tuple[float, float | None]:
    """Return the mean of values and its standard error, which one value does not give."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else None
    return float(np.mean(values)), error


def interval(mean: float, error: float | None) -> str:
    """Return a loss with its standard error for a table, in nats/token."""
    return f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")


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


def window_loss(logits: NDArray[np.floating], tokens: list[int]) -> float:
    """Return the mean negative log-likelihood of all tokens except the first, in nats/token."""
    scores = logits[:-1].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-chances[np.arange(len(tokens) - 1), tokens[1:]].mean())


def measure(
    subject: Subject, reference: FloatModel, windows: Windows, bars: Progress
) -> Perplexity:
    """Measure a subject and the model in float32 on the same windows.

    Raises
    ------
    UserError
        If the windows are too long for one of them.
    """
    both = dict.fromkeys((reference, subject))
    for own in both:
        if windows.context > own.longest:
            raise UserError(
                f"CONTEXT must be at most the {own.longest} positions of {own.name}, "
                f"not {windows.context}"
            )
    found = {own: _measured(own, windows.tokens, bars) for own in both}
    return Perplexity(
        top=subject.name,
        reference=subject.reference,
        identity=subject.identity,
        text=windows.text,
        context=windows.context,
        losses=[float(window["loss"]) for window in found[subject]],
        float_losses=[float(window["loss"]) for window in found[reference]],
        samples=[window["sample"].tolist() for window in found[subject] if "sample" in window],
    )


def _measured(subject: Subject, windows: list[list[int]], bars: Progress) -> list[Arrays]:
    """Return what is kept of each window; windows of earlier runs are read."""
    from golden.llm.store import TensorStore

    store = TensorStore(BUILD / "perplexity" / "windows")
    task = bars.add_task(f"windows by {subject.name}", total=len(windows))
    code = code_digest(__name__, without=NOT_FOLLOWED)
    prepared, found = False, []
    for number, window in enumerate(windows):
        inputs = repr([subject.identity, code, window])
        group = hashlib.sha256(inputs.encode()).hexdigest()[:16]
        if not store.intact(group):
            if not prepared:
                subject.prepare(lambda words: bars.update(task, description=words))
                prepared = True
                bars.update(task, description=f"windows by {subject.name}")
            made = subject.window(window, lambda share: bars.advance(task, share))
            with locked(store.folder / "lock"):
                store.write(group, {name: np.asarray(array) for name, array in made.items()})
        with np.load(store.path(group)) as kept:
            found.append({name: kept[name] for name in kept.files})
        bars.update(task, completed=number + 1)
    return found


COMMANDS: tuple[click.Command, ...] = (perplexity,)
"""What `systola.cli` adds to its own verbs."""
