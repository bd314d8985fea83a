"""The verb ``explore``: a sweep over a unit's parameters, as jobs on one or many machines.

With `POLICY` it is a sweep over cache policies and their fields, measured as by ``perplexity``.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from click.core import ParameterSource
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hdl.errors import UserError
from hdl.paths import BUILD, expanded, replace_text
from systola import environment, perplexity
from systola.options import UserPath, console, path_shown

HOME = BUILD / "explore"
WEIGHT = {"sim": 1.0, "synth": 2.0, "fpga": 4.0}
"""Relative cost of each verb, which orders the jobs until times have been measured."""


FRONT = "*"
"""Mark of a point of the Pareto front in the table of policies."""

OF_UNITS = ("top", "preset", "for_", "liberty", "seeds", "only", "scheduler", "workers")
OF_POLICIES = ("windows", "context", "text", "model")
"""The options of a sweep over a unit's parameters only, and over policies only."""


@click.command()
@click.option("--top", help="Unit, as listed by `make list`; a TOML file contains its own.")
@click.option("--policy", help="Instead of a unit: cache policies, names or files (.py).")
@click.option(
    "--sweep",
    required=True,
    help="Values by parameter, lanes=4,8 stages=1..3 width=8..64:8 rows=2..32*2; or a TOML file. "
    "Fields of policies: budget=32..256*2.",
)
@click.option("--preset", help="Preset that the sweep modifies; the unit's default if absent.")
@click.option("--for", "for_", default="synth,sim", help="Measurements: synth, sim, fpga.")
@click.option("--liberty", help="Cell library, as for synth; OSU018 if absent.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, help="Simulations per point.")
@click.option("--only", help="Name of the one sweep of a TOML file to run.")
@click.option("--scheduler", help="Address of a Dask scheduler; a local cluster if absent.")
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Local workers; one per core if absent."
)
@perplexity.text_options
@click.option("--model", type=UserPath(), help="GGUF or safetensors file, for policies.")
@click.pass_context
def explore(
    click_context: click.Context,
    top: str | None,
    policy: str | None,
    sweep: str,
    preset: str | None,
    for_: str,
    liberty: str | None,
    seeds: int,
    only: str | None,
    scheduler: str | None,
    workers: int | None,
    windows: int,
    context: int,
    text: str,
    model: Path | None,
) -> None:
    """Measure a unit or policies over a range of parameters: tables and plots of Pareto fronts."""
    from systola.exploration.sweep import Sweep, parse_sweep, read_sweeps

    _require_options(click_context, policy)
    if policy is not None:
        environment.require("explore", "synth", *perplexity.GROUPS)
        _explore_policies(policy.split(), parse_sweep(sweep), model, text, windows, context)
        return
    verbs = tuple(word for word in for_.replace(",", " ").split())
    if sweep.endswith(".toml"):
        known = read_sweeps(expanded(sweep, "SWEEP"))
        sweeps = [each for each in known if only in (None, each.name)]
        if not sweeps:
            raise UserError(f"ONLY must be a sweep of {sweep}, not {only!r}")
    elif not top:
        raise UserError("TOP must name the unit that SWEEP varies")
    else:
        grid = parse_sweep(sweep)
        sweeps = [Sweep(name=top, top=top, preset=preset, verbs=verbs, grid=grid, seeds=seeds)]
    environment.require("explore", "synth", *_groups(each.verbs for each in sweeps))
    library = _library(liberty) if any("synth" in each.verbs for each in sweeps) else ("", "")
    for each in sweeps:
        _explore(each, library, scheduler, workers)


def _require_options(context: click.Context, policy: str | None) -> None:
    """Refuse options that only the other kind of sweep has.

    Raises
    ------
    UserError
        With the names of the options.
    """
    kind, others = ("a unit", OF_POLICIES) if policy is None else ("policies", OF_UNITS)
    given = [
        option.opts[0].removeprefix("--").upper()
        for option in context.command.params
        if option.name in others
        and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise UserError(f"{', '.join(given)} must not be given for a sweep of {kind}")


def _explore_policies(
    texts: Sequence[str],
    grid: Mapping[str, tuple[Any, ...]],
    model: Path | None,
    text: str,
    windows: int,
    context: int,
) -> None:
    """Measure the perplexity of policies, and write the table and the plot."""
    from systola.exploration.output import write_front
    from systola.exploration.policies import policy_points, policy_row
    from systola.exploration.results import write_table

    points = policy_points(texts, grid)
    for name, rule in points.illegal.items():
        console.print(f"illegal: {name}: {rule}", highlight=False)
    cut = perplexity.Windows.open(model, text, windows, context)
    reference = perplexity.FloatModel(cut.model)
    table: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    started = time.monotonic()
    for point in points.legal:
        subject = perplexity.PolicyModel(reference, point.named)
        try:
            with perplexity.progress_bars() as bars:
                measured = perplexity.measure(subject, reference, cut, bars)
        except UserError as error:
            failed[point.name] = str(error)
            continue
        measured.write(subject.stem)
        table.append(policy_row(point, measured))
    names = dict.fromkeys(point.named.name for point in points.legal)
    sweep = "-".join(["policies", *names])
    home = HOME / sweep
    written = write_table(table, home / "results") if table else []
    if table:
        console.print(_policies_table(table, f"exploring {table[0]['of']}"))
    fronts: dict[str, str] = {}
    for title, _lines, files in write_front(table, home, sweep) if table else ():
        fronts[title] = files[0].stem
        written += files
    for name, reason in failed.items():
        console.print(f"[red]failed[/]: {name}: {reason}", highlight=False)
    values = {
        "sweep": sweep,
        "policies": list(names),
        "text": text,
        "windows": windows,
        "context": context,
        "points": len(points.legal),
        "illegal combinations": len(points.illegal),
        "failed": len(failed),
        "wall seconds": round(time.monotonic() - started, 1),
        "fronts": fronts,
    }
    replace_text(home / "explore.json", json.dumps(values, indent=2) + "\n")
    for file in (*written, home / "explore.json"):
        console.print(f"wrote {path_shown(file)}")
    if failed:
        raise SystemExit(1)


def _policies_table(table: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return the table of policies, with a mark at the points of the Pareto front."""
    from systola.exploration.pictures import BUDGET, PERPLEXITY, front

    best = front([dict(row) for row in table], BUDGET, PERPLEXITY)
    shown = Table(
        "policy", "cached tokens", "perplexity", "loss over full cache, nats/token",
        "evictions equal to float64", title=title,
    )  # fmt: skip
    for row in table:
        mark = f" {FRONT}" if row in best else ""
        shown.add_row(
            row["point"],
            str(row["budget"]),
            f"{row['perplexity']:.4f}{mark}",
            perplexity.interval(row["added_loss"], row["added_loss_error"]),
            f"{row['evictions_equal']:,} of {row['evictions_checked']:,}",
        )
    shown.add_row("full cache", "all", f"{table[0]['float_perplexity']:.4f}", "", "")
    shown.caption = f"{FRONT}: no other point has at most its cached tokens and its perplexity"
    return shown


def _groups(verbs: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the groups of packages that the jobs of sweeps need."""
    measured = {verb for each in verbs for verb in each}
    simulation = environment.SIMULATION if "sim" in measured else ()
    return (*simulation, *(["fpga"] if "fpga" in measured else []))


def _explore(
    sweep: Any, library: tuple[str, str], scheduler: str | None, workers: int | None
) -> None:
    """Run the jobs of a sweep that have no result yet, and write its tables and plots."""
    from systola.exploration.plan import plan_jobs
    from systola.exploration.results import Journal
    from systola.exploration.sweep import expand

    points = expand(sweep)
    for settings, rule in points.illegal.items():
        console.print(f"illegal: {settings}: {rule}", highlight=False)
    jobs = plan_jobs(sweep, points, library)
    journal = Journal(HOME / "results.jsonl")
    left = [job for job in jobs if not journal.done(job)]
    started = time.monotonic()
    failed, count = _run(left, journal, sweep.name, scheduler, workers) if left else ({}, 0)
    wall = time.monotonic() - started
    done = [job for job in jobs if journal.done(job)]
    _conclude(sweep, points, jobs, done, failed, left, journal, wall, count)


def _run(
    jobs: Sequence[Any], journal: Any, name: str, scheduler: str | None, workers: int | None
) -> tuple[dict[str, str], int]:
    """Run jobs and add their results to the journal.

    Returns
    -------
    tuple[dict[str, str], int]
        The paths of the failed jobs' logs, by title, and the number of workers.
    """
    from systola.exploration.engine import cluster, run_jobs
    from systola.exploration.job import Result, run_job
    from systola.exploration.plan import expected_seconds

    failed: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        cluster(scheduler, workers) as client,
        Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars,
    ):
        task = bars.add_task(name, total=len(jobs))
        lengths = [expected_seconds(job, journal.results.values(), WEIGHT) for job in jobs]
        keys = [job.key for job in jobs]
        for index, outcome in run_jobs(client, run_job, jobs, keys, lengths):
            job = jobs[index]
            if isinstance(outcome, Result) and not outcome.failure:
                journal.add(outcome)
            else:
                log = outcome.log if isinstance(outcome, Result) else str(outcome)
                file = HOME / name / "logs" / f"{job.key}.log"
                replace_text(file, f"{job.title}\n{log}\n")
                failed[job.title] = str(path_shown(file))
            bars.advance(task)
        return failed, len(client.scheduler_info(n_workers=-1)["workers"])


def _conclude(
    sweep: Any,
    points: Any,
    jobs: Sequence[Any],
    done: Sequence[Any],
    failed: Mapping[str, str],
    ran: Sequence[Any],
    journal: Any,
    wall: float,
    workers: int,
) -> None:
    """Write tables and plots, and print a summary."""
    from systola.exploration.cost_model import schedule
    from systola.exploration.output import write_front, write_schedule
    from systola.exploration.results import rows, write_table
    from systola.exploration.sweep import values_of

    home = HOME / sweep.name
    table = [
        row
        for job in done
        for row in rows(job, journal.results[job.key], values_of(points.legal[job.point]))
    ]
    written = write_table(table, home / "results") if table else []
    fronts: dict[str, str] = {}
    for title, lines, files in write_front(table, home, sweep.name) if table else ():
        fronts[title] = files[0].stem
        if lines:
            shown = Table(*lines[0], title=title)
            for line in lines:
                shown.add_row(*map(str, line.values()))
            console.print(shown)
        written += files
    seconds = [journal.results[job.key].seconds for job in done]
    now = [journal.results[job.key].seconds for job in ran if journal.done(job)]
    if seconds:
        written += write_schedule(seconds, home)
    for title, log in failed.items():
        console.print(f"[red]failed[/]: {title}, see {log}", highlight=False)
    summary = {
        "points": len(points.legal),
        "illegal combinations": len(points.illegal),
        "excluded by where": points.excluded,
        "jobs": len(jobs),
        "known before": len(jobs) - len(ran),
        "run now": len(ran) - len(failed),
        "failed": len(failed),
        "seconds per job": round(fmean(seconds), 1) if seconds else "-",
        "workers": workers,
        "wall seconds": round(wall, 1),
        "by the cost model": round(schedule(now, workers).wall, 1) if workers else "-",
    }
    values = {"sweep": sweep.name, "top": sweep.top} | summary | {"fronts": fronts}
    replace_text(home / "explore.json", json.dumps(values, indent=2) + "\n")
    printed = Table(title=f"exploring {sweep.name}", show_header=False)
    for what, value in summary.items():
        printed.add_row(what, str(value))
    console.print(printed)
    for file in (*written, home / "explore.json"):
        console.print(f"wrote {path_shown(file)}")
    if failed:
        raise SystemExit(1)


def _library(liberty: str | None) -> tuple[str, str]:
    """Return the paths of a cell library's files and their digest; empty for the default.

    Raises
    ------
    UserError
        If a file does not exist or is no library.
    """
    if not liberty:
        return "", ""
    from synth.liberty import find_library
    from synth.liberty_files import SEPARATOR, liberty_paths
    from systola.exploration.job import liberty_digest

    find_library(liberty)
    paths = SEPARATOR.join(map(str, liberty_paths(liberty)))
    return paths, liberty_digest(paths)


COMMANDS = (explore,)
"""What `systola.cli` adds to its own verbs."""
