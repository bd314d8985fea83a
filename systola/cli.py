"""The command line: one command per verb, which prints a table and the paths of written files."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hdl.errors import UserError, unknown
from hdl.paths import BUILD, IN_CHECKOUT, ROOT
from hdl.target import find_target
from systola import environment
from systola.compare import COMMANDS as COMPARISON
from systola.explore import COMMANDS as EXPLORATION
from systola.generate import COMMANDS as GENERATION
from systola.layout import COMMANDS as LAYOUT
from systola.mutation import COMMANDS as MUTATION
from systola.options import (
    Chosen,
    choose,
    console,
    name_option,
    out_option,
    parameters_option,
    path_shown,
    preset_option,
    require_checkout,
    settings_option,
    target_option,
    unit_options,
)
from systola.packing import COMMANDS as PACKING
from systola.perplexity import COMMANDS as PERPLEXITY
from systola.regression import COMMANDS as REGRESSION
from systola.site import COMMANDS as SITE
from systola.study import COMMANDS as STUDIES
from systola.synthesis import COMMANDS as SYNTHESIS

REFUSALS = {
    getattr(errno, name)
    for name in "ENOSPC EDQUOT EFBIG EROFS EACCES EPERM EIO ENOTDIR EMFILE ENFILE ENOMEM".split()
}
"""Errors of the operating system that a user can correct: no space, permission or resources."""


class _Verbs(click.Group):
    """The verbs, in the order of first use; errors in the user's input end with status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            # Flush here, so that an error of the last write is reported by the verb.
            sys.stdout.flush()
        except (UserError, ValueError) as error:
            raise click.UsageError(str(error)) from error
        return result

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            place = error.filename or f"standard output and the files in {BUILD}"
            click.echo(f"Error: {place} must be writable: {error.strerror}", err=True)
            with suppress(OSError, ValueError):
                # At exit, the interpreter would write the rest of the buffer and report the error
                # again: discard it.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(2)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Systola: accelerators for large-language-model inference as synthesizable RTL.

    Every verb is also a make target, and every option a make variable:
    `make sim TOP=systolic_evictor PRESET=paper WAVES=1`.
    """


@main.command("list")
@click.option("--top", help="Unit whose parameters are listed; all units if absent.")
@preset_option
@parameters_option
@settings_option
@click.option("--all", "all_", type=bool, default=False, help="1 adds meanings and all presets.")
def list_units(
    top: str | None, preset: str | None, parameters: Path | None, settings: str, all_: bool
) -> None:
    """List the units, their papers and presets, or the parameters of one unit."""
    from systola.units import all_units

    if top:
        _list_parameters(choose(top, preset, parameters, settings), all_)
        return
    if preset or parameters or settings or all_:
        raise UserError("TOP must name the unit whose parameters are listed")
    table = Table(box=None, pad_edge=False)
    # Do not wrap names, because the user copies them to the next command.
    table.add_column("TOP", no_wrap=True)
    for title in ("paper", "function", "presets"):
        table.add_column(title)
    for entry in all_units():
        table.add_row(entry.top, entry.paper, entry.summary, " ".join(entry.presets))
    console.print(table)


@main.command()
@unit_options()
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Repeats a run; random if absent.")
@click.option(
    "--waves",
    type=click.Choice(["0", "1", "fst"]),
    default="0",
    help="1 writes a waveform as VCD and a GTKWave view; fst writes FST, which is smaller.",
)
@click.option(
    "--coverage", type=bool, default=False, help="1 measures line, toggle and functional coverage."
)
@click.option("--sim", default="verilator", help="verilator or icarus (four-state).")
@click.option("--full", type=bool, default=False, help="1 runs the testbench's long version.")
@click.option("--netlist", type=bool, default=False, help="1 simulates the synthesised netlist.")
@click.option("--liberty", default=None, help="Cell library for NETLIST=1, as for synth.")
@click.option("--only", default=None, help="Regular expression; runs the tests that match.")
@target_option
def sim(
    unit: Chosen,
    seed: int | None,
    waves: str,
    coverage: bool,
    sim: str,
    full: bool,
    netlist: bool,
    liberty: str | None,
    only: str | None,
    target: str,
) -> None:
    """Simulate a unit's Verilog on real tensors against its golden model."""
    from systola.units import simulation_groups

    environment.require_ready(*simulation_groups(unit.entry))
    from testbenches.runner import Request, simulate

    request = Request(
        simulator=sim,
        seed=seed,
        waves=waves != "0",
        fst=waves == "fst",
        coverage=coverage,
        full=full,
        netlist=netlist,
        liberty=liberty,
        target=find_target(target),
        only=only,
    )
    with console.status(f"simulating {unit.top} at {unit.preset} with {sim}"):
        result = simulate(unit.entry, unit.dimensions, request)
    table = Table(title=unit.title, show_header=False)
    table.add_row("result", "[green]passed[/]" if result.passed else "[red]FAILED[/]")
    if unit.policy:
        table.add_row("policy", unit.policy)
    table.add_row("tensors", result.tensors)
    table.add_row("tests", f"{result.tests}, {result.failures} failed")
    table.add_row("values compared", f"{result.values_checked:,}, {result.mismatches:,} differ")
    if result.utilization is not None:
        share = f"{result.cycles:,}, ideal {result.ideal_cycles:,} ({result.utilization:.2%})"
        table.add_row("cycles", share)
    for name, value in result.facts.items():
        table.add_row(name.replace("_", " "), str(value))
    rate = f"{result.seconds} s, {result.sim_cycles_per_second:,.0f} cycles/s"
    table.add_row("simulation", f"{result.simulator}, seed {result.seed}, {rate}")
    console.print(table)
    for file in result.outputs:
        console.print(f"wrote {path_shown(Path(file))}")
    console.print(f"wrote {path_shown(unit.home / request.result_name)}.json")
    if not result.passed:
        console.print(f"[red]{result.first_failure}[/]", markup=True, highlight=False)
        sys.exit(1)


@main.command()
@unit_options()
@out_option("build/<top>/<preset>/rtl")
@target_option
@click.option("--sources", type=bool, default=False, help="1 adds the Python source lines.")
@name_option("TOP")
def verilog(unit: Chosen, out: Path | None, target: str, sources: bool, name: str | None) -> None:
    """Write a unit's Verilog-2005, its file list and its manifest."""
    from hdl.emitted import emit_unit

    emitted = emit_unit(
        unit.entry, unit.dimensions, find_target(target), sources=sources, directory=out, name=name
    )
    table = Table("module", "lines", title=unit.title)
    for module, file in zip(emitted.modules, emitted.verilog, strict=True):
        table.add_row(module.name, str(len(file.read_text().splitlines())))
    console.print(table)
    for path in (emitted.file_list, *emitted.documents):
        console.print(f"wrote {path_shown(path)}")


for command in (
    *SYNTHESIS, *LAYOUT, *MUTATION, *STUDIES, *GENERATION, *PERPLEXITY, *COMPARISON, *PACKING,
    *EXPLORATION, *SITE, *REGRESSION,
):  # fmt: skip
    main.add_command(command)


@main.command()
def lint() -> None:
    """Check style, types, and the emitted Verilog of every unit."""
    require_checkout("lint")
    environment.require(*environment.GROUPS)
    from testbenches.lint import lint_verilog

    bin_directory = Path(sys.executable).parent
    results = {
        "ruff check": subprocess.call([bin_directory / "ruff", "check"], cwd=ROOT),
        "ruff format": subprocess.call([bin_directory / "ruff", "format", "--check"], cwd=ROOT),
        "pyright": subprocess.call([bin_directory / "pyright", "--warnings"], cwd=ROOT),
        "verilator --lint-only": lint_verilog(),
    }
    table = Table("check", "result")
    for name, status in results.items():
        table.add_row(name, "[red]failed[/]" if status else "[green]clean[/]")
    console.print(table)
    sys.exit(1 if any(results.values()) else 0)


@main.command("format")
def format_sources() -> None:
    """Format the Python sources and sort their imports."""
    require_checkout("format")
    environment.require("dev")
    ruff = Path(sys.executable).parent / "ruff"
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        # Ruff prints the reason of a failure.
        if status := subprocess.call([ruff, *command], cwd=ROOT):
            sys.exit(status)


@main.command()
@click.option("--all", "all_", type=bool, default=False, help="1 prints every package.")
def doctor(all_: bool) -> None:
    """Print package groups, tools and differences: found, wanted, what to do."""
    if IN_CHECKOUT:
        groups = Table("group", "packages", "MB", "state")
        for name in environment.GROUPS:
            lock = environment.lock_named(name)
            there = environment.is_complete(lock, environment.VENV)
            state = "installed" if there else "installed when a verb needs it"
            groups.add_row(name, lock.title, str(lock.megabytes), state)
        console.print(groups)
    checks = environment.check_host() + environment.check_packages()
    shown = [check for check in checks if all_ or check.matters]
    table = Table()
    for title in ("tool", "found", "wanted", "state", "what to do"):
        table.add_column(title, overflow="fold")
    for check in shown:
        advice = "" if check.state == environment.READY else check.advice
        table.add_row(check.name, check.found, check.wanted, check.state, advice)
    console.print(table)
    if rest := len(checks) - len(shown):
        console.print(f"{rest} more are ok; ALL=1 prints them")
    if problem := environment.first_problem(checks):
        raise UserError(problem)


@main.command()
@click.option("--groups", default=" ".join(environment.GROUPS), help="Groups to install.")
def setup(groups: str) -> None:
    """Install all packages and repair corrupted ones; afterwards no verb needs a network."""
    require_checkout("setup")
    names = groups.split()
    for name in names:
        if name not in environment.GROUPS:
            raise UserError(unknown("GROUPS", name, environment.GROUPS))
    environment.set_up(*names, verify=True)
    from synth.layout.checker import missing_programs

    for name, without in missing_programs(fetch=True).items():
        console.print(f"{name} is not available from apt; features without it: no {without}")


@main.command()
def clean() -> None:
    """Remove the build directory; keep the virtual environment."""
    require_checkout("clean")
    shutil.rmtree(BUILD, ignore_errors=True)
    console.print(f"removed {path_shown(BUILD)}")


@main.command("help")
@click.pass_context
def show_help(ctx: click.Context) -> None:
    """Show this text."""
    assert ctx.parent is not None
    console.print(ctx.parent.get_help(), highlight=False)


def _list_parameters(unit: Chosen, all_: bool) -> None:
    """Print one line per parameter: name, value, legal values and unit.

    Parameters
    ----------
    unit : Chosen
        The unit and its dimensions.
    all_ : bool
        Whether to also print the meaning of each parameter and its values in the presets.
    """
    from hdl.parameter_list import descriptions

    presets = unit.entry.presets
    # A part has a meaning but no value; its parameters follow it.
    described = list(descriptions(type(unit.parameters)))
    known = [each for each in described if all_ or each.value(unit.parameters)]
    values = [parameter.value(unit.parameters) for parameter in known]
    widths = [max(map(len, column)) for column in ([each.path for each in known], values)]
    print(f"{unit.top} at {unit.preset}; presets: {' '.join(presets)}", "", sep="\n")
    for parameter, value in zip(known, values, strict=True):
        legal = f"{parameter.legal} {parameter.unit}".strip()
        print(f"{parameter.path:{widths[0]}}  {value:{widths[1]}}  {legal}".rstrip())
        if all_:
            groups: dict[str, list[str]] = {}
            for name, parameters in presets.items():
                groups.setdefault(parameter.value(parameters), []).append(name)
            own = "; ".join(f"{each}: {' '.join(names)}" for each, names in groups.items() if each)
            for text in filter(None, (parameter.meaning, own)):
                print(textwrap.fill(text, 79, initial_indent="    ", subsequent_indent="    "))
            print()
