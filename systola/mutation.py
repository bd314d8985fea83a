"""The verb ``mutate``: the share of random changes in a unit's Verilog that its testbench finds."""

import random

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from systola import environment
from systola.options import Chosen, console, path_shown, unit_options


@click.command()
@unit_options("tiny")
@click.option("--count", type=click.IntRange(1, 4000), default=50, help="Number of mutants.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), help="Repeats a selection; random if absent."
)
def mutate(unit: Chosen, count: int, seed: int | None) -> None:
    """Apply random changes to a unit's Verilog, and count those that its testbench finds."""
    from systola.units import simulation_groups

    environment.require(*simulation_groups(unit.entry))
    from testbenches.mutation import Outcome
    from testbenches.mutation import mutate as simulate_mutants

    seed = seed if seed is not None else random.SystemRandom().getrandbits(31)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task(unit.title, total=count)
        result = simulate_mutants(
            unit.entry,
            unit.dimensions,
            count=count,
            seed=seed,
            progress=lambda words, done: bars.update(task, description=words, completed=done),
        )
    left = [mutant for mutant in result.mutants if mutant.outcome is Outcome.SURVIVED]
    if left:
        table = Table(title="survivors")
        for title in ("mutant", "change", "place", "source", "analysis"):
            table.add_column(title, overflow="fold")
        for mutant in left:
            source = " ".join(mutant.source)
            table.add_row(str(mutant.number), mutant.change, mutant.place, source, mutant.found_by)
        console.print(table)
    table = Table(title=f"{unit.title}, {len(result.mutants)} mutants, seed {seed}")
    for outcome in Outcome:
        table.add_column(outcome.value)
    table.add_column("found, of non-equivalent")
    score = "-" if result.score is None else f"{result.score:.1%}"
    table.add_row(*(str(result.count(outcome)) for outcome in Outcome), score)
    console.print(table)
    if unit.policy:
        console.print(f"policy {unit.policy}")
    console.print(f"wrote {path_shown(result.file)}")


COMMANDS = (mutate,)
