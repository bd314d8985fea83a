"""The verb ``generate``: text by a language model in an accelerator's Verilog, or with a policy."""

import contextlib
import errno
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Group
from rich.live import Live
from rich.text import Text

from hdl.errors import UserError, unknown
from hdl.paths import BUILD, IN_CHECKOUT, replace_text
from hdl.target import Target
from systola import environment
from systola.options import (
    PACKED,
    UserPath,
    choose,
    console,
    parameters_option,
    path_shown,
    require_one,
    settings_option,
)

if TYPE_CHECKING:
    from systola.generation.finished import Finished
    from testbenches.external_memory import ExternalMemory

SYSTEMS = {
    "veda": ("systola.generation.veda", "VedaSystem"),
    "meadow": ("systola.generation.meadow", "MeadowSystem"),
    "kelle": ("systola.generation.kelle", "KelleSystem"),
    "lad": ("systola.generation.lad", "LadSystem"),
    "p3llm": ("systola.generation.p3llm", "P3llmSystem"),
}
"""The accelerators that can generate text: module and class of each adapter."""

SHELLS = {
    "meadow_axi": ("systola.generation.meadow_axi", "MeadowAxiSystem"),
    "veda_axi": ("systola.generation.veda_axi", "VedaAxiSystem"),
    "kelle_axi": ("systola.generation.kelle_axi", "KelleAxiSystem"),
    "lad_axi": ("systola.generation.lad_axi", "LadAxiSystem"),
    "p3llm_axi": ("systola.generation.p3llm_axi", "P3llmAxiSystem"),
}
"""Accelerators with the AXI shell, which the host library drives."""

GENERATORS = SYSTEMS | SHELLS

BUDGET, RESERVED = 128, 32


def system_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a language model and an accelerator's cache and dimensions."""
    options = (
        click.option("--budget", type=int, help=f"Tokens that a layer caches, {BUDGET} if absent."),
        click.option(
            "--reserved", type=int, help=f"First tokens that cast no votes, {RESERVED} if absent."
        ),
        click.option("--model", type=UserPath(), help="GGUF or safetensors file."),
        click.option("--preset", help="Dimensions that the model does not decide."),
        parameters_option,
        settings_option,
        click.option("--retention", help="Kelle: refresh intervals by which the eDRAM loses bits."),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


@click.command()
@click.option("--top", help=f"Accelerator: {', '.join(GENERATORS)}.")
@click.option("--policy", help="Cache policy of the model in float32: a name, or a file (.py).")
@click.option("--prompt", required=True, help="Text to continue.")
@click.option(
    "--tokens",
    type=int,
    default=16,
    help="Tokens to generate, 16 if absent; fewer if the text ends.",
)
@system_options
@click.option("--check", type=bool, default=True, help="0 skips the golden model.")
@click.option(
    "--compare", type=bool, default=True, help="0 skips the comparison with `transformers`."
)
@click.option("--memory", default="none", help="External memory, and changes to its numbers.")
@click.option("--clock", type=int, help="Clock of MEMORY and RETENTION, MHz; 1000 or the legal.")
@click.option("--waves", type=bool, default=False, help="1 samples a waveform, for `make power`.")
@click.option("--packed", type=UserPath(), help="Folder or file that pack wrote for TOP.")
@click.pass_context
def generate(
    context: click.Context,
    top: str | None,
    policy: str | None,
    prompt: str,
    tokens: int,
    budget: int | None,
    reserved: int | None,
    model: Path | None,
    preset: str | None,
    parameters: Path | None,
    settings: str,
    retention: str | None,
    check: bool,
    compare: bool,
    memory: str,
    clock: int | None,
    waves: bool,
    packed: Path | None,
) -> None:
    """Generate text with a language model in an accelerator's Verilog, or with a cache policy."""
    require_one(top, policy)
    if top is not None and top not in GENERATORS:
        raise UserError(unknown("TOP", top, GENERATORS))
    _require_text(prompt)
    if not prompt:
        raise UserError("PROMPT must contain at least one token, not be empty")
    if tokens < 1:
        raise UserError(f"TOKENS must be at least 1, not {tokens}")
    if reserved is not None and reserved < 0:
        raise UserError(f"RESERVED must be at least 0, not {reserved}")
    from testbenches.external_memory import memory_of, require_clock

    external = memory_of(memory)
    require_clock(clock)
    own = preset or parameters or settings or retention or external or clock or waves or packed
    if policy is not None and own:
        raise UserError(
            "PRESET, PARAMETERS, SET, RETENTION, MEMORY, CLOCK, WAVES and PACKED are not for "
            f"{policy}"
        )
    if retention is not None and not check:
        raise UserError("RETENTION needs CHECK=1: the golden model computes which bits are lost")
    if policy is None:
        environment.require_ready(*environment.SIMULATION, "llm")
    else:
        environment.require("llm", "data", "study")
    # These import torch and the simulator, which takes seconds.
    from golden.llm.model import DataFileError
    from systola.generation.run import Interrupted
    from systola.generation.system import Mismatch

    command = _command(context)
    try:
        if policy is not None:
            named = named_policy(policy, budget, reserved)
            finished = _generate_by_policy(named, prompt, tokens, model, check, command)
        else:
            assert top is not None
            chosen = choose(top, preset, parameters, settings)
            system = adapter_of(top)
            wanted = replace(
                cache_settings(system, budget, reserved, retention),
                check=check,
                waves=waves,
                memory=external,
                clock=clock_of(system, external, clock),
                packed=packed_file(system, packed),
            )
            finished = _generate(system, chosen, prompt, tokens, model, wanted, command)
        _conclude(finished, compare)
    except (Interrupted, DataFileError) as error:
        raise UserError(str(error)) from error
    except Mismatch as error:
        raise UserError(f"the Verilog differs from the golden model: {error}") from error
    except KeyboardInterrupt:
        raise UserError(
            "interrupted before the run started: there is nothing to continue"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"the disk of {BUILD} or of the standard output is full; finished blocks are kept, "
            "and the same command continues"
        ) from error


def adapter_of(top: str) -> Any:
    """Return the class that adapts an accelerator, a `systola.generation.system.System`."""
    module, name = GENERATORS[top]
    return getattr(import_module(module), name)


def named_policy(text: str, budget: int | None, reserved: int | None) -> Any:
    """Return the policy that POLICY selects, a `golden.policies.registry.Named`.

    Raises
    ------
    UserError
        If there is no such policy, or it has no field for an option that is given.
    ValueError
        If a value is not legal.
    """
    from golden.policies.registry import policy_named

    return policy_named(text).adjusted(budget, reserved)


def cache_settings(
    system_class: Any,
    budget: int | None,
    reserved: int | None,
    retention: str | None = None,
) -> Any:
    """Return the settings of a run with the options of the cache, or their defaults.

    Raises
    ------
    UserError
        If an option of the budget is given, and the accelerator's parameters set what a layer
        caches; or RETENTION, and it has no eDRAM or not these intervals.
    """
    from systola.generation.system import Settings

    if not system_class.budgets and (budget, reserved) != (None, None):
        raise UserError(
            f"BUDGET and RESERVED are not for {system_class.top}, whose parameters set what a "
            "layer caches"
        )
    if retention is not None and not system_class.retentions:
        raise UserError(f"RETENTION is not for {system_class.top}, which has no eDRAM")
    if retention is not None and retention not in system_class.retentions:
        raise UserError(unknown("RETENTION", retention, system_class.retentions))
    return Settings(
        budget=BUDGET if budget is None else budget,
        reserved=RESERVED if reserved is None else reserved,
        retention=retention,
    )


def clock_of(system_class: Any, memory: "ExternalMemory | None", clock: int | None) -> int | None:
    """Return the clock that the settings of a run have, None if it decides nothing.

    Raises
    ------
    UserError
        If a clock is given, and there is neither a memory nor an eDRAM whose times it converts.
    """
    if memory is not None:
        return system_class.clock_mhz if clock is None else clock
    if clock is not None and not system_class.retentions:
        raise UserError(f"CLOCK needs a MEMORY for {system_class.top}, which has no eDRAM")
    return clock


def packed_file(system_class: Any, packed: Path | None) -> Path | None:
    """Return the file of the packed model that PACKED names, None if it is absent.

    Raises
    ------
    UserError
        If the accelerator has no packed weights.
    """
    if packed is not None and not system_class.packs:
        raise UserError(f"PACKED is not for {system_class.top}, whose weights are not packed")
    return packed / PACKED if packed is not None and packed.is_dir() else packed


def _require_text(prompt: str) -> None:
    """Refuse a prompt that was not UTF-8 on the command line."""
    # Python decodes such a byte to a surrogate, which no tokeniser accepts.
    for place, character in enumerate(prompt):
        if "\udc80" <= character <= "\udcff":
            raise UserError(
                f"PROMPT must be text in UTF-8, not {ord(character) - 0xDC00:#04x} after "
                f"{place} characters"
            )


def _command(context: click.Context) -> str:
    """Return the command line of this verb, with all options that were given, for a shell."""
    words = ["make", "generate"] if IN_CHECKOUT else ["python", "-m", "systola", "generate"]
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        value = context.params[name]
        value = str(int(value)) if isinstance(value, bool) else str(value)
        option = parameter.opts[0]
        if IN_CHECKOUT:
            variable = option.removeprefix("--").replace("-", "_").upper()
            words.append(f"{variable}={shlex.quote(value)}")
        else:
            words += [option, shlex.quote(value)]
    return " ".join(words)


def _generate(
    system_class: Any,
    chosen: Any,
    prompt: str,
    tokens: int,
    file: Path | None,
    settings: Any,
    command: str,
) -> "Finished":
    """Prepare an accelerator's run, and run it."""
    from golden.llm.language_model import open_language_model
    from systola.generation.finished import FinishedVerilog
    from systola.generation.run import Run, require_tokens

    with console.status("opening the model") as status:
        model = open_language_model(file)
        text = model.tokens_of(prompt)
        system = fitted_system(system_class, model, chosen, settings)
        require_tokens(text, tokens, system.longest)
        system.prompt_blocks(len(text))
        system.prepare(status.update)
        digest = _compiled_digest(chosen.entry, system)
    about = {
        "command": _shown(command),
        "verilog_digest": digest,
        "file": _shown(model.file.name),
        "text of the prompt": prompt,
    }
    run = Run(
        system=system,
        model=model,
        prompt=text,
        tokens=tokens,
        settings=settings,
        folder=system.folder,
        about=about,
    )
    _print_text(run, prompt)
    return FinishedVerilog(run)


def _generate_by_policy(
    named: Any, prompt: str, tokens: int, file: Path | None, check: bool, command: str
) -> "Finished":
    """Prepare a run of the model in float32 with a cache policy, and run it."""
    from golden.llm.language_model import open_language_model
    from golden.study.sample import Sample
    from systola.generation.finished import FinishedPolicy
    from systola.generation.policy import PolicySystem
    from systola.generation.run import Run, require_tokens
    from systola.generation.system import Settings

    with console.status("opening the model"):
        model = open_language_model(file)
        text = model.tokens_of(prompt)
        # Of all caches, the prompt selects the one that is compared.
        total = sum(text)
        layer = total % model.shape.layers
        sample = Sample(named.policy, layer, total, len(text) + tokens) if check else None
        system: Any = PolicySystem(model, named, sample)
        require_tokens(text, tokens, system.longest)
    policy = named.policy
    folder = BUILD / "policies" / named.name / "generate"
    run = Run(
        system=system,
        model=model,
        prompt=text,
        tokens=tokens,
        settings=Settings(
            budget=policy.budget, reserved=getattr(policy, "reserved", 0), check=check
        ),
        folder=folder,
        about={
            "command": _shown(command),
            "file": _shown(model.file.name),
            "text of the prompt": prompt,
        },
    )
    _print_text(run, prompt)
    return FinishedPolicy(run)


def _conclude(finished: "Finished", compare: bool) -> None:
    """Compare a finished run, print its table, and name its files."""
    # The run is finished: an interrupt ends the comparisons and keeps the table.
    with contextlib.suppress(KeyboardInterrupt):
        finished.compare(transformers=compare)
    console.print(finished.table())
    for problem in finished.problems:
        console.print(Text(problem))
    for written in finished.files:
        console.print(f"wrote {path_shown(written)}", markup=False)


def fitted_system(system_class: Any, model: Any, chosen: Any, settings: Any) -> Any:
    """Return an accelerator's adapter with the model's dimensions and its folder of results."""
    fitted = system_class.with_memory(system_class.fitted(model, chosen.parameters), settings)
    presets = chosen.entry.presets.items()
    dimensions = next((name for name, own in presets if own == fitted), fitted)
    folder = BUILD / chosen.top / chosen.entry.named(dimensions)[0] / "generate"
    folder.mkdir(parents=True, exist_ok=True)
    return system_class(model, fitted, settings, folder)


def _compiled_digest(entry: Any, system: Any) -> str:
    """Return the digest of a prepared system's Verilog, which is kept next to its program."""
    from hdl.emitted import emit_unit

    program = system.harness.program
    # The program's path changes with its Verilog.
    file = program.with_name(f"{program.name}.verilog_digest")
    if not file.is_file():
        replace_text(file, emit_unit(entry, system.p, Target.FPGA).digest)
    return file.read_text()


def _shown(text: str) -> str:
    """Return a text without surrogates, which a path may contain and no file can store."""
    return os.fsencode(text).decode(errors="replace")


def _print_text(run: Any, prompt: str) -> None:
    """Run; print the text as it is generated, and the progress of the current block."""
    # Only a first run of the system imports it: it depends on torch.
    from systola.generation.text_stream import TextStream, printable

    stream = TextStream(run.continuation)
    if not console.is_terminal:
        _write(prompt)
        run.go(lambda token: _write(stream.add(token)), lambda block, progress: None)
        _write(stream.end() + "\n")
        return
    line = "starting"
    began = time.monotonic()

    def view() -> Group:
        return Group(Text(printable(prompt + stream.shown)), Text(line, style="dim"))

    with Live(view(), console=console, refresh_per_second=8) as live:

        def decided(token: int) -> None:
            nonlocal line
            stream.add(token)
            line = f"token {len(run.progress.tokens)} of {run.tokens}"
            live.update(view())

        def watch(block: Any, progress: Any) -> None:
            nonlocal line
            line = _progress_line(run, block, progress, time.monotonic() - began)
            live.update(view())

        run.go(decided, watch)
        stream.end()
        line = ""
        live.update(view())


def _write(text: str) -> None:
    """Write a text to a standard output that is not a terminal, as it is."""
    out = console.file
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def _progress_line(run: Any, block: Any, progress: Any, passed: float) -> str:
    """Describe the progress of a block, and estimate the remaining time."""
    layers = run.model.shape.layers
    rate = progress.cycles / progress.seconds if progress.seconds else 0.0
    number = len(run.progress.tokens) + 1
    where = f"layer {progress.layer + 1} of {layers}" if progress.layer < layers else "LM head"
    what = f"token {number} of {run.tokens}" if block.predict else "prompt"
    left = ""
    if progress.fraction > 0:
        own = progress.seconds / progress.fraction
        rest = own * (1 - progress.fraction) + own / block.count * (run.tokens - number)
        left = f", {rest:,.0f} s left"
    return f"{what}, {where}: {progress.cycles:,} cycles, {rate:,.0f} cycles/s{left}"


COMMANDS: tuple[click.Command, ...] = (generate,)
"""What `systola.cli` adds to its own verbs."""
