"""The verb ``test``: pytest here, on every core, or its tests as jobs on a cluster."""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hdl.errors import UserError
from hdl.paths import BUILD, ROOT, replace_text
from systola import environment
from systola.options import UserPath, console, path_shown, require_checkout


@click.command()
@click.option("--full", type=bool, default=False, help="1 also runs the tests marked full.")
@click.option(
    "--resume",
    type=bool,
    default=False,
    help="With FULL=1: skip tests that passed after the last change of their sources.",
)
@click.option("--only", type=UserPath(), help="A test file or folder instead of all.")
@click.option("--keyword", default=None, help="Only tests whose names fit, as in pytest's -k.")
@click.option("--scheduler", help="Address of a Dask scheduler whose workers share the tests.")
def test(
    full: bool, resume: bool, only: Path | None, keyword: str | None, scheduler: str | None
) -> None:
    """Run the tests: models, arithmetic, emission, proofs, and every unit's simulation."""
    if resume and (not full or scheduler):
        raise UserError("RESUME=1 must be used with FULL=1 and without SCHEDULER")
    require_checkout("test")
    environment.require(*environment.GROUPS)
    from synth.layout.checker import missing_programs

    missing_programs(fetch=True)
    marked = [] if full else ["-m", "not full"]
    selected = [*(["-k", keyword] if keyword else []), *([str(only)] if only else [])]
    if scheduler:
        _spread([*marked, *selected], scheduler)
        return
    # Send each test separately to the next free worker; by default, one worker would get all
    # simulations in one chunk.
    workers = ["-n", "auto", "--maxschedchunk", "1"]
    records = ["--record", *(["--record-long"] if full else [])]
    records += ["--resume"] if resume else []
    if not full and not selected:
        marked = ["--rotating", "-m", "not full or rotating"]
    # A conftest would add the options for files below `tests` only.
    pytest = [sys.executable, "-m", "pytest", "-p", "tests.long_half"]
    command = [*pytest, *workers, *records, *marked, *selected]
    # Options in the environment could select a subset, whose success would look like that of all.
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    status = subprocess.call(command, cwd=ROOT, env=variables)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    console.print(f"processor time: {used.ru_utime:.0f} s user, {used.ru_stime:.0f} s system")
    sys.exit(status)


def _spread(selection: Sequence[str], scheduler: str) -> None:
    """Run the selected tests on a cluster, and count what ran where."""
    from hdl.catalog import CATALOG
    from systola.exploration.engine import cluster, run_jobs
    from systola.exploration.regression import (
        GroupResult,
        closing_line,
        collect,
        run_group,
    )

    with console.status("collecting tests"):
        groups = collect(selection, {entry.top for entry in CATALOG})
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    results: list[GroupResult] = []
    with (
        cluster(scheduler) as client,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars,
    ):
        task = bars.add_task("testing", total=len(groups))
        names = [group.name for group in groups]
        lengths = [float(len(group.tests)) for group in groups]
        for index, outcome in run_jobs(client, run_group, groups, names, lengths):
            bars.advance(task)
            if isinstance(outcome, GroupResult):
                results.append(outcome)
            else:
                count = len(groups[index].tests)
                results.append(
                    GroupResult(
                        name=names[index], worker="a lost worker", passed=0, failed=count,
                        skipped=0, seconds=0, log=str(outcome),
                    )
                )  # fmt: skip
    failed = [result for result in results if result.failed]
    for result in failed:
        file = BUILD / "test" / f"{result.name.replace('/', '.').replace(' ', '-')}.log"
        replace_text(file, result.log + "\n")
        console.print(f"[red]failed[/]: {result.name}, see {path_shown(file)}", highlight=False)
    console.print(closing_line(results), highlight=False)
    sys.exit(1 if failed else 0)


COMMANDS = (test,)
"""What `systola.cli` adds to its own verbs."""
