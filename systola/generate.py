"""The verb ``generate``: a language model speaks through an accelerator's Verilog."""

import contextlib
import errno
import shlex
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hdl.errors import UserError, unknown
from hdl.paths import BUILD
from systola import environment
from systola.options import choose, console, parameters_option, path_shown, settings_option

SYSTEMS = {
    "veda": ("systola.generation.veda", "VedaSystem"),
    "meadow": ("systola.generation.meadow", "MeadowSystem"),
    "kelle": ("systola.generation.kelle", "KelleSystem"),
    "lad": ("systola.generation.lad", "LadSystem"),
    "p3llm": ("systola.generation.p3llm", "P3llmSystem"),
}
"""Accelerators that speak: where their adapters are. Another one joins by a line here."""

BUDGET, RESERVED = 128, 32

BARE_CYCLES = 50_000
"""Of the model by itself, beside which a run's speed is told."""


@click.command()
@click.option("--top", required=True, help=f"Accelerator: {', '.join(SYSTEMS)}.")
@click.option("--prompt", required=True, help="Text that is continued.")
@click.option("--tokens", type=int, default=16, help="Tokens to generate at most, 16 if absent.")
@click.option("--budget", type=int, help=f"Tokens that a layer caches, {BUDGET} if absent.")
@click.option("--reserved", type=int, help=f"First tokens, without a vote, {RESERVED} if absent.")
@click.option("--model", type=click.Path(path_type=Path), help="GGUF or safetensors file.")
@click.option("--preset", help="Dimensions where the model does not decide.")
@parameters_option
@settings_option
@click.option("--check", type=bool, default=True, help="0 leaves the golden model out.")
@click.option("--compare", type=bool, default=True, help="0 leaves `transformers` out.")
@click.option("--waves", type=bool, default=False, help="1 samples a waveform, for `make power`.")
def generate(
    top: str,
    prompt: str,
    tokens: int,
    budget: int | None,
    reserved: int | None,
    model: Path | None,
    preset: str | None,
    parameters: Path | None,
    settings: str,
    check: bool,
    compare: bool,
    waves: bool,
) -> None:
    """Let a language model speak through an accelerator's Verilog."""
    if top not in SYSTEMS:
        raise UserError(unknown("TOP", top, SYSTEMS))
    if not prompt:
        raise UserError("PROMPT must hold at least one token, and is empty")
    if tokens < 1:
        raise UserError(f"TOKENS must be at least 1, not {tokens}")
    if reserved is not None and reserved < 0:
        raise UserError(f"RESERVED must be at least 0, not {reserved}")
    if problem := environment.first_problem(
        environment.check_host() + environment.check_packages()
    ):
        raise UserError(problem)
    # These import torch and the simulator's parts, which takes seconds.
    from golden.llm.model import DataFileError
    from systola.generation.run import Interrupted
    from systola.generation.system import Mismatch, Settings

    chosen = choose(top, preset, parameters, settings)
    module, name = SYSTEMS[top]
    system = getattr(import_module(module), name)
    if not system.budgets and (budget, reserved) != (None, None):
        raise UserError(
            f"BUDGET and RESERVED are not for {top}, whose parameters say what a layer caches"
        )
    wanted = Settings(
        budget=BUDGET if budget is None else budget,
        reserved=RESERVED if reserved is None else reserved,
        check=check,
        waves=waves,
    )
    try:
        _generate(system, chosen, prompt, tokens, model, wanted, compare)
    except (Interrupted, DataFileError) as error:
        raise UserError(str(error)) from error
    except Mismatch as error:
        raise UserError(f"the Verilog differs from the golden model: {error}") from error
    except KeyboardInterrupt:
        raise UserError("interrupted before the run began: nothing is lost") from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"the disk of {BUILD} is full; what was finished is kept, and the same command goes on"
        ) from error


def _generate(
    system_class: Any,
    chosen: Any,
    prompt: str,
    tokens: int,
    file: Path | None,
    settings: Any,
    compare: bool,
) -> None:
    """Prepare, run, and print what came of it."""
    from golden.llm.language_model import open_language_model
    from systola.generation.run import Run, require_tokens

    with console.status("opening the model") as status:
        model = open_language_model(file)
        text = model.tokens_of(prompt)
        fitted = system_class.fitted(model, chosen.parameters)
        presets = chosen.entry.presets.items()
        dimensions = next((name for name, own in presets if own == fitted), fitted)
        folder = BUILD / chosen.top / chosen.entry.named(dimensions)[0] / "generate"
        folder.mkdir(parents=True, exist_ok=True)
        system = system_class(model, fitted, settings, folder)
        require_tokens(text, tokens, system.longest)
        system.prompt_blocks(len(text))
        system.prepare(status.update)
    about = {
        "command": f"make generate TOP={chosen.top} PROMPT={shlex.quote(prompt)} TOKENS={tokens}",
        "file": model.file.name,
        "text of the prompt": prompt,
    }
    run = Run(
        system=system,
        model=model,
        prompt=text,
        tokens=tokens,
        settings=settings,
        folder=folder,
        about=about,
    )
    _speak(run, prompt)
    theirs, alone = None, None
    # The run is finished: who does not wait for what it is compared with has its table.
    with contextlib.suppress(KeyboardInterrupt):
        if not system.samples:
            # Sampling would write over the run's waveform, and is slower than either.
            with console.status("running the model of the Verilog by itself"):
                alone = system.harness.bare(BARE_CYCLES)
        if compare:
            from systola.generation.continuation import reference

            with console.status("asking transformers"):
                theirs = reference(model, text, len(run.progress.tokens))
    console.print(_summary(run, theirs, alone))
    console.print(f"wrote {path_shown(run.checkpoint.record)}")
    if samples := system.samples:
        console.print(f"wrote {path_shown(samples.file)}")


def _speak(run: Any, prompt: str) -> None:
    """Print the words as they are decided, and below them how far the next one is."""
    if not console.is_terminal:
        _speak_plainly(run, prompt)
        return
    shown = {"text": prompt, "line": "beginning"}
    began = time.monotonic()

    def view() -> Group:
        return Group(Text(shown["text"]), Text(shown["line"], style="dim"))

    with Live(view(), console=console, refresh_per_second=8) as live:

        def decided(_token: int) -> None:
            shown["text"] = prompt + run.continuation(run.progress.tokens)
            live.update(view())

        def watch(block: Any, moving: Any) -> None:
            shown["line"] = _line(run, block, moving, time.monotonic() - began)
            live.update(view())

        run.go(decided, watch)
        shown["text"] = prompt + run.continuation(run.progress.tokens)
        shown["line"] = ""
        live.update(view())


def _speak_plainly(run: Any, prompt: str) -> None:
    """Write the words to what is no terminal."""
    out = console.file.write
    out(prompt)
    said = [""]

    def decided(_token: int) -> None:
        text = run.continuation(run.progress.tokens[: len(said)])
        out(text.removeprefix(said[-1]))
        said.append(text)
        console.file.flush()

    run.go(decided, lambda block, moving: None)
    out("\n")


def _line(run: Any, block: Any, moving: Any, passed: float) -> str:
    """Say how far a block is, and how long the rest may take."""
    layers = run.model.shape.layers
    rate = moving.cycles / moving.seconds if moving.seconds else 0.0
    number = len(run.progress.tokens) + 1
    where = f"layer {moving.layer + 1} of {layers}" if moving.layer < layers else "vocabulary"
    what = f"token {number} of {run.tokens}" if block.predict else "prompt"
    left = ""
    if moving.share > 0:
        own = moving.seconds / moving.share
        rest = own * (1 - moving.share) + own / block.count * (run.tokens - number)
        left = f", {rest:,.0f} s left"
    return f"{what}, {where}: {moving.cycles:,} cycles, {rate:,.0f} a second{left}"


def _summary(run: Any, theirs: list[int] | None, alone: float | None) -> Table:
    """Return the table of a finished run.

    `alone` are the cycles a second of the model by itself, at rest and behind no memory.
    """
    from systola.generation.continuation import parting

    figures = run.progress.figures
    steps = [f for f in figures if f["token"] is not None][1:] or figures[-1:]
    cycles = sum(f["cycles"] for f in steps) / len(steps)
    bound = sum(f["bound"] for f in steps) / len(steps)
    octets = sum(f["octets_read"] + f["octets_written"] for f in steps) / len(steps)
    seconds = sum(f["seconds"] for f in figures)
    table = Table(
        title=f"{run.about['file']} through {run.about['command'].split()[2]}", show_header=False
    )
    table.add_row(
        "tokens", f"{len(run.prompt)} of the prompt, {len(run.progress.tokens)} generated"
    )
    table.add_row(
        "cycles a token",
        f"{cycles:,.0f}; {run.system.bound}: {bound:,.0f} ({bound / cycles:.1%})",
    )
    table.add_row("off-chip octets a token", f"{octets:,.0f}")
    if unpacked := sum(f["octets_unpacked"] for f in steps) / len(steps):
        table.add_row("with weights unpacked", f"{unpacked:,.0f}: {unpacked / octets:.2f} times")
    if run.system.evicts:
        table.add_row("evictions", f"{sum(len(f['evictions']) for f in figures):,}")
    for what in steps[-1]["decided"]:
        table.add_row(
            f"{what} a token", f"{sum(f['decided'][what] for f in steps) / len(steps):,.1f}"
        )
    rate = sum(f["cycles"] for f in figures) / seconds
    table.add_row(
        "simulation",
        f"{rate:,.0f} cycles a second, "
        f"{sum(f['seconds'] for f in steps) / len(steps):.1f} s a token, {seconds:,.0f} s in all",
    )
    if alone:
        table.add_row(
            "the same by itself", f"{alone:,.0f} cycles a second: {rate / alone:.2f} of it"
        )
    if run.resumed:
        table.add_row("interrupted", f"behind {run.resumed} tokens, and gone on from there")
    if run.settings.check:
        table.add_row("golden model", f"{run.system.compared} are equal")
    if theirs is not None:
        place = parting(run.progress.tokens, theirs)
        same = "the same tokens" if place is None else f"parts at token {place + 1}"
        table.add_row("transformers, float32", same)
        if place is not None:
            table.add_row("", run.continuation(theirs))
    return table


COMMANDS: tuple[click.Command, ...] = (generate,)
"""What `systola.cli` adds to its own verbs."""
