"""The verb ``compare``: rows of the comparison from existing results, for any designs."""

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from hdl.errors import UserError, unknown
from hdl.paths import BUILD, IN_CHECKOUT, ROOT, replace_text
from hdl.settings import parse_settings
from systola import environment
from systola.generate import SYSTEMS
from systola.make import options
from systola.options import console, path_shown, settings_option
from testbenches.external_memory import memory_of, require_clock

HOME = BUILD / "compare"
MISSING = "Missing or stale; RUN=1 runs these commands in order:"


@click.command()
@click.option("--top", help=f"Accelerators: {', '.join(SYSTEMS)}; all if absent.")
@click.option("--preset", help="One preset, or two of one accelerator.")
@settings_option
@click.option("--policy", help="Cache policies of the model in float32: names, or files (.py).")
@click.option("--budget", type=int, help="Tokens that a layer of VEDA, Kelle or a policy caches.")
@click.option("--bandwidth", type=float, help="Bandwidth in GB/s; each paper's own if absent.")
@click.option("--memory", default="none", help="External memory of further rows, from runs.")
@click.option("--clock", type=int, help="Clock of these runs, MHz; 1000 if absent, or the legal.")
@click.option("--context", type=int, help="Cached tokens; those of the measured run if absent.")
@click.option("--liberty", help="NanGate45 for the commands, .lib or .lib.gz.")
@click.option("--run", "run_", type=bool, default=False, help="1 runs the missing commands.")
def compare(
    top: str | None,
    preset: str | None,
    settings: str,
    policy: str | None,
    budget: int | None,
    bandwidth: float | None,
    memory: str,
    clock: int | None,
    context: int | None,
    liberty: str | None,
    run_: bool,
) -> None:
    """Compare accelerators, parameter sets of one, and policies, by the results that exist."""
    tops = list(dict.fromkeys((top or "").split())) or list(SYSTEMS)
    for name in tops:
        if name not in SYSTEMS:
            raise UserError(unknown("TOP", name, SYSTEMS))
    if budget is not None and budget < 2:
        raise UserError(f"BUDGET must be at least 2, not {budget}")
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise UserError(f"BANDWIDTH must be above 0 GB/s and finite, not {bandwidth:g}")
    require_clock(clock)
    if memory_of(memory) is None:
        memory = ""
        if clock is not None:
            raise UserError("CLOCK needs a MEMORY, whose times it converts to cycles")
    environment.require("llm", "data", "synth")
    # These import torch, which takes a second.
    from golden.llm.language_model import open_language_model
    from golden.llm.model import DataFileError
    from synth.comparison import kept
    from systola.comparing.design import Design, choices
    from systola.comparing.policies import PolicyColumn

    try:
        with console.status("opening the model"):
            model = open_language_model()
    except DataFileError as error:
        raise UserError(str(error)) from error
    systems = kept()["systems"]
    chosen = choices(tops, (preset or "").split(), parse_settings(settings), budget, systems)
    designs = [Design.open(choice, model, systems[choice.top]) for choice in chosen]
    if memory:
        designs = [design.with_memory(memory, clock) for design in designs]
    for design in designs:
        longest = design.system.longest
        if context is not None and not 1 <= context < longest:
            raise UserError(
                f"CONTEXT must be from 1 to {longest - 1}, the tokens before the last position of "
                f"{design.choice.top}, not {context}"
            )
    texts = dict.fromkeys((policy or "").split())
    policies = [PolicyColumn.open(text, budget, model) for text in texts]
    measurement = _Measurement(designs, policies, bandwidth, memory, context, liberty)
    failed = measurement.run() if run_ else []
    measurement.conclude()
    for command in failed:
        console.print(Text(f"failed: {command}"))
    if failed:
        sys.exit(1)


class _Measurement:
    """The designs and policies, their figures, and the commands that are missing."""

    def __init__(
        self,
        designs: Sequence[Any],
        policies: Sequence[Any],
        bandwidth: float | None,
        memory: str,
        context: int | None,
        liberty: str | None,
    ) -> None:
        from systola.comparing.figures import Reader

        self.designs, self.bandwidth, self.liberty = designs, bandwidth, liberty
        self.policies, self.memory, self.context = policies, memory, context
        self._status = console.status("reading results")
        self._reader = Reader(context, lambda what: self._status.update(f"emitting {what}"))
        self._read()

    def _read(self) -> None:
        """Read the figures, and find the commands of those that are missing or stale."""
        with self._status:
            self.figures = [self._reader.figures(design) for design in self.designs]
            self.missing: dict[str, str] = {}
            for design, figures in zip(self.designs, self.figures, strict=True):
                own = design.commands(self.liberty, self.context)
                for kind in self._reader.missing(design, figures):
                    self.missing[own[kind]] = f"{design.kept['name']}, {kind}"
            self.policy_figures = [policy.figures() for policy in self.policies]
            for policy, figures in zip(self.policies, self.policy_figures, strict=True):
                if policy.missing(figures):
                    self.missing[str(policy.command)] = f"{policy.title}, perplexity"

    def run(self) -> list[str]:
        """Run the missing commands in order, and return those that failed.

        A command is not run if its figures exist by then.

        Raises
        ------
        UserError
            If a command needs the cell library, and the file is not NanGate45.
        """
        from systola.comparing.design import Command

        # A wrong library is reported before hours of simulation.
        for variables in (Command.read(command).variables for command in self.missing):
            if "LIBERTY" in variables:
                _require_nangate45(variables["LIBERTY"])
        tried: list[str] = []
        failed = []
        while left := [command for command in self.missing if command not in tried]:
            command = left[0]
            console.print(Text(f"{len(left)} left: {command}", style="bold"))
            tried.append(command)
            if _call(command):
                failed.append(command)
            self._read()
        return failed

    def conclude(self) -> None:
        """Print the table and the missing commands, and write both as JSON and Markdown."""
        from systola.comparing.rows import Comparison, cell, rows_at, rows_with

        names = list(dict.fromkeys(design.kept["name"] for design in self.designs))
        pairs = list(zip(self.designs, self.figures, strict=True))
        variants = len(names) < len(self.designs)
        differs = variants and not self.policies
        beside = list(zip(self.policies, self.policy_figures, strict=True))
        cells = {
            row: [cell(row, *pair) for pair in pairs]
            + [policy.cell(row, figures) for policy, figures in beside]
            for row in (*rows_at(self.bandwidth), *(rows_with(self.memory) if self.memory else ()))
        }
        columns = [_title(design) for design in self.designs] if variants else list(names)
        columns += [policy.title for policy in self.policies]
        comparison = Comparison(columns=columns, cells=cells, differs=differs)
        memory = "the papers' memories" if self.bandwidth is None else f"{self.bandwidth:g} GB/s"
        cached = "measured runs" if self.context is None else f"{self.context:,} cached tokens"
        title = f"{', '.join(names)}: {memory}, {cached}"
        head, *lines = comparison.lines()
        table = Table(*head, title=title)
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        for sentence in comparison.legend():
            console.print(Text(sentence))
        if self.missing:
            console.print(MISSING)
        for command in self.missing:
            console.print(Text(f"  {command}"))
        self._write(title, comparison)

    def _write(self, title: str, comparison: Any) -> None:
        """Write the rows, the source of each figure, and all commands."""
        designs = [
            {
                "top": design.choice.top,
                "parameters": repr(design.system.p),
                "cached_tokens_at_most": design.cached,
                "figures": {name: asdict(own) for name, own in figures.items()},
                "commands": design.commands(self.liberty, self.context),
            }
            for design, figures in zip(self.designs, self.figures, strict=True)
        ]
        policies = [
            policy.record(figures)
            for policy, figures in zip(self.policies, self.policy_figures, strict=True)
        ]
        asked = [[own["top"], own["parameters"], own["cached_tokens_at_most"]] for own in designs]
        asked.append([self.bandwidth, self.memory, self.context])
        asked += [[policy.title, repr(policy.named.policy)] for policy in self.policies]
        key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
        stem = "-".join([*dict.fromkeys(design.choice.top for design in self.designs), key])
        record = {
            "bandwidth_gb_s": self.bandwidth,
            "memory": self.memory,
            "context": self.context,
            "designs": designs,
            "policies": policies,
            "rows": comparison.records(),
            "missing": self.missing,
        }
        every = [command for own in designs + policies for command in own["commands"].values()]
        page = [f"# {title}", comparison.markdown(), "Commands that measure these figures:"]
        page.append(_listed(every))
        page += [MISSING, _listed(self.missing)] if self.missing else []
        for ending, text in (("json", json.dumps(record, indent=1)), ("md", "\n\n".join(page))):
            file = HOME / f"{stem}.{ending}"
            replace_text(file, text + "\n")
            console.print(f"wrote {path_shown(file)}", markup=False)


def _listed(commands: Iterable[str]) -> str:
    """Return commands as a block of Markdown."""
    return "\n".join(f"    {command}" for command in dict.fromkeys(commands))


def _title(design: Any) -> str:
    """Return the name of a design among others of its system."""
    return " ".join(filter(None, design.choice.variables.values())) or design.kept["name"]


def _require_nangate45(file: str) -> None:
    """Refuse a cell library whose results are no figures of the comparison."""
    from synth.figures import LIBRARIES
    from synth.liberty import find_library

    name, wanted = find_library(file).name, LIBRARIES["nangate45"]
    if name != wanted:
        raise UserError(f"LIBERTY must be NanGate45, {wanted}, not {name}")


def _call(command: str) -> int:
    """Run a command of make and return its exit status."""
    from systola.comparing.design import Command

    own = Command.read(command)
    words = [sys.executable, "-m", "systola", own.verb, *options(dict(own.variables))]
    return subprocess.call(words, cwd=ROOT if IN_CHECKOUT else None)


COMMANDS: tuple[click.Command, ...] = (compare,)
"""What `systola.cli` adds to its own verbs."""
