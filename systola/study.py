"""The verb ``study``: measurement of a paper's claims on a real model."""

import difflib
from collections.abc import Callable
from importlib import import_module

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hdl.errors import UserError
from hdl.paths import BUILD
from systola import environment
from systola.options import console, path_shown

WINDOWS = {"kelle": (1, 8), "lad": (1, 8), "meadow": (1, 8), "p3llm": (2, 16), "veda": (1, 8)}
"""Number of text windows by default and with FULL=1, by paper."""

CONTEXTS = ("256", "512", "1024", "2048", "4096")
"""Tokens per window; the last value is the maximum for sixteen windows of the text."""

PAPERS = tuple(WINDOWS)


@click.command()
@click.option("--paper", required=True, help="kelle, lad, meadow, p3llm or veda.")
@click.option("--full", type=bool, default=False, help="1 uses eight times the text.")
@click.option("--context", type=click.Choice(CONTEXTS), default="1024", help="Tokens per window.")
def study(paper: str, full: bool, context: str) -> None:
    """Measure a paper's claims on SmolLM2 and compare them with the paper's figures."""
    check_paper(paper)
    environment.require("llm", "data", "study")
    # These modules import torch, which takes a second.
    from golden.study.outcome import write_outcome
    from golden.study.subject import news

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:

        def progress(what: str, steps: int) -> Callable[[], None]:
            task = bars.add_task(what, total=steps)
            return lambda: bars.advance(task)

        loaded = progress("loading SmolLM2", 1)
        subject = news(WINDOWS[paper][full], int(context), progress)
        loaded()
        outcome = import_module(f"golden.study.{paper}").study(subject, full=full)
    written = write_outcome(outcome, BUILD / "study")
    table = Table("claim", "paper", "here", "holds", title=f"study of {paper}")
    for claim in outcome.claims:
        table.add_row(claim.what, claim.paper, claim.ours, claim.holds)
    console.print(table)
    for path in written:
        console.print(f"wrote {path_shown(path)}")


COMMANDS: tuple[click.Command, ...] = (study,)
"""What `systola.cli` adds to its own verbs."""


def check_paper(paper: str) -> None:
    """Check that a paper has a study.

    Raises
    ------
    UserError
        If it has none; the message suggests the nearest name.
    """
    if paper not in PAPERS:
        near = difflib.get_close_matches(paper.lower(), PAPERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"PAPER must be one of {', '.join(PAPERS)}, not {paper!r}{hint}")
