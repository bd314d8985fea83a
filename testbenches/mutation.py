"""How strong a testbench is: random mutations of a unit's Verilog, each simulated by its testbench.

Yosys's `mutate` inverts a wire, holds it at a constant, or lets another bit control it. All mutants
of a unit are compiled into one simulator, and a number given to the simulation chooses one of them;
number 0 is the design as it is. A mutant that no test finds is compared with the original
(`testbenches.mutant_proof`); one that is not equal, and inside an operator, is given to the
operator's own trial (`testbenches.operator_mutant`).
"""

import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hdl.catalog import CATALOG
from hdl.emit import Emission, Port
from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.paths import BUILD, locked, replace_text
from hdl.yosys import run_yosys
from testbenches.mutant_proof import compare, lower
from testbenches.operator_mutant import Operators, found_by_trial, operators_among
from testbenches.quick_form import COMPOSED, quick_form
from testbenches.runner import Request, SimulationResult, prepare, run_testbench

SELECT_BITS = 12
PATIENCE, LEAST_SECONDS = 20, 60
"""A mutant may take so many times the original's time, and so many seconds in any case."""


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    BY_TRIAL = "by its operator's trial"
    SURVIVED = "survived"
    EQUAL = "equal"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mutation and its outcome.

    Parameters
    ----------
    number : int
        Its number in the simulator, from 1 on.
    change : str
        Yosys's word for what was done: ``inv``, ``const0``, ``const1``, ``cnot0``, ``cnot1``.
    place : str
        The cell's port and bit.
    source : tuple[str, ...]
        Lines of Python.
    outcome : Outcome
    found_by : str
        The failure that killed it, or what a trial found; for a survivor, what is known of a
        difference.
    """

    number: int
    change: str
    place: str
    source: tuple[str, ...]
    outcome: Outcome
    found_by: str = ""


@dataclass(frozen=True, kw_only=True)
class MutationResult:
    """What ``mutate.json`` holds; `verilog_digest` as in `SimulationResult`."""

    top: str
    preset: str
    seed: int
    verilog_digest: str
    mutants: tuple[Mutant, ...]

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return BUILD / self.top / self.preset / "mutate.json"

    def count(self, outcome: Outcome) -> int:
        """Count the mutants of one outcome."""
        return sum(mutant.outcome is outcome for mutant in self.mutants)

    @property
    def values(self) -> dict[str, Any]:
        """What is written: also how many mutants there are of each outcome."""
        outcomes = {str(outcome): self.count(outcome) for outcome in Outcome}
        return asdict(self) | {"outcomes": outcomes}

    @property
    def found(self) -> int:
        """Mutants that the testbench, or an operator's trial, finds."""
        return sum(map(self.count, (Outcome.KILLED, Outcome.TIMED_OUT, Outcome.BY_TRIAL)))

    @property
    def score(self) -> float | None:
        """Share of those found among all that are not proven equal; None if there are none."""
        different = len(self.mutants) - self.count(Outcome.EQUAL)
        return self.found / different if different else None


def mutate(
    entry: Entry,
    dimensions: str | Any,
    *,
    count: int,
    seed: int,
    progress: Callable[[str, int], None] = lambda words, done: None,
) -> MutationResult:
    """Simulate random mutants of a unit, and write ``mutate.json``.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or a parameter object of the unit; see `Entry.named`.
    count, seed : int
        How many mutants, and which.
    progress : Callable[[str, int], None]
        Told after each step what was done, and how many mutants are decided.

    Raises
    ------
    UserError
        If the unmutated design fails.
    """
    preset, parameters = entry.named(dimensions)
    home = BUILD / entry.top / preset
    with locked(home.with_name(f".{preset}.mutate.lock")):
        directory = home / "mutate"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        unit = entry.unit(parameters=parameters)
        # The gates of what is put together are mutants of its parts.
        form = quick_form(entry.top, preset)
        emission = Emission(top=unit, name=entry.top, sources=True, target=form)
        ports = emission.modules[-1].ports
        commands = draw(emission, directory, count=count, seed=seed)
        sources = _all_in_one(entry.top, ports, commands, directory)
        prepare(entry, parameters)
        operators = operators_among(emission.modules)
        job = _Job(entry, preset, parameters, directory, ports, tuple(sources), seed, operators)
        progress("compiling", 0)
        original = job.run(0, None)
        if not original.passed:
            raise UserError(f"{entry.top} fails without any mutation: {original.first_failure}")
        limit = max(LEAST_SECONDS, PATIENCE * original.seconds)
        mutants = []
        # Processes of their own: cocotb's runner works through the environment.
        pool = ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
        with pool:
            decided = [
                pool.submit(_decide, job, number, command, limit)
                for number, command in enumerate(commands, 1)
            ]
            for done, future in enumerate(as_completed(decided), 1):
                mutants.append(future.result())
                progress(f"{mutants[-1].change} at {mutants[-1].place}", done)
    mutants.sort(key=lambda mutant: mutant.number)
    result = MutationResult(
        top=entry.top,
        preset=preset,
        seed=seed,
        verilog_digest=emit_unit(entry, dimensions).digest,
        mutants=tuple(mutants),
    )
    replace_text(result.file, json.dumps(result.values, indent=2) + "\n")
    return result


@dataclass(frozen=True)
class _Job:
    """What all mutants of one run share."""

    entry: Entry
    preset: str
    parameters: Any
    directory: Path
    ports: Sequence[Port]
    sources: tuple[Path, ...]
    seed: int
    operators: Operators

    def run(self, number: int, seconds: float | None) -> SimulationResult:
        """Simulate one mutant."""
        return run_testbench(
            top=self.entry.top,
            preset=self.preset,
            parameters=self.parameters,
            testbench=self.entry.testbench,
            ports=self.ports,
            verilog=self.sources,
            home=self.directory,
            request=Request(seed=self.seed, seconds=seconds, plusargs=(f"+mutant={number}",)),
            name=f"mutant_{number}",
        )


def _decide(job: _Job, number: int, command: str, limit: float) -> Mutant:
    """Simulate one mutant; if it survives, try to prove it equal, and give it to a trial."""
    # One failure tells enough.
    os.environ["COCOTB_MAX_FAILURES"] = "1"
    option = dict(re.findall(r"-(mode|cell|port|portbit|ctrlbit) (\S+)", command))
    outcome, found_by = Outcome.SURVIVED, ""
    try:
        result = job.run(number, limit)
        if not result.passed:
            outcome, found_by = Outcome.KILLED, result.first_failure.splitlines()[0]
    except UserError as error:
        outcome, found_by = Outcome.TIMED_OUT, str(error).splitlines()[0]
    if outcome is Outcome.SURVIVED:
        top, directory = job.entry.top, job.directory
        equal, found_by = compare(top, job.ports, command, directory, number)
        outcome = Outcome.EQUAL if equal else outcome
        if not equal and (told := found_by_trial(top, command, directory, number, job.operators)):
            outcome, found_by = Outcome.BY_TRIAL, told
    shutil.rmtree(job.directory / f"mutant_{number}", ignore_errors=True)
    bit = option["portbit"] + (f" by bit {option['ctrlbit']}" if "ctrlbit" in option else "")
    return Mutant(
        number=number,
        change=option["mode"],
        place=f"{option['cell'].replace('$flatten', '').lstrip(chr(92))} {option['port']}[{bit}]",
        source=tuple(re.findall(r"-src (\S+\.py:\d+)", command)),
        outcome=outcome,
        found_by=found_by,
    )


def draw(emission: Emission, directory: Path, *, count: int, seed: int) -> list[str]:
    """Write the flat design, also as gates, and return commands that mutate it, one each.

    Units that have testbenches of their own are spared in one that is put together from them, as
    long as there is anything else: their mutants are their testbenches'.
    """
    (directory / "design.il").write_text("\n".join(module.rtlil for module in emission.modules))
    *parts, whole = emission.modules
    units = {entry.unit for entry in CATALOG}
    spared = [part.name for part in parts if part.identity[0] in units]
    read = ["read_rtlil design.il", f"hierarchy -top {whole.name}", "proc", "memory_collect"]
    flat = [*read, "flatten", "opt_clean", "write_rtlil flat.il", "select -write cells t:$*"]
    run_yosys([*flat, f"mutate -list {count} -seed {seed} -o mutations"], directory=directory)
    if spared and whole.name in COMPOSED:
        kept = [f"setattr -mod -set keep_hierarchy 1 {name}" for name in spared]
        own = [*read, *kept, "flatten", "opt_clean", *(f"delete {name}" for name in spared)]
        # Cells of the flat design: not instances, nor what only a spared unit reads and ignores.
        drawing = f"mutate -list {count} -seed {seed} -o own_mutations @cells t:$* %i"
        run_yosys([*own, "select -set cells -read cells", drawing], directory=directory)
    lower(whole.name, whole.ports, directory / "flat.il", directory)
    drawn = directory / "own_mutations"
    if not drawn.exists() or not drawn.read_text():
        drawn = directory / "mutations"
    return drawn.read_text().splitlines()


def _all_in_one(
    top: str, ports: Sequence[Port], commands: Sequence[str], directory: Path
) -> list[Path]:
    """Write Verilog that holds every mutant, and a top that takes a mutant's number."""
    run_yosys(
        [
            "read_rtlil flat.il",
            *(
                command.replace("mutate ", f"mutate -ctrl mutant {SELECT_BITS} {number} ", 1)
                for number, command in enumerate(commands, 1)
            ),
            f"rename {top} {top}_mutants",
            "write_verilog -noattr mutants.v",
        ],
        directory=directory,
    )
    lines = [f"module {top}({', '.join(port.name for port in ports)});"]
    lines += [f"  {port.direction} [{port.width - 1}:0] {port.name};" for port in ports]
    lines += [
        f"  reg [{SELECT_BITS - 1}:0] mutant;",
        '  initial if (!$value$plusargs("mutant=%d", mutant)) mutant = 0;',
        f"  {top}_mutants core({', '.join(f'.{port.name}({port.name})' for port in ports)},",
        "    .mutant(mutant));",
        "endmodule",
    ]
    (directory / "top.v").write_text("\n".join(lines) + "\n")
    return [directory / "mutants.v", directory / "top.v"]
