"""Strength of a testbench: random mutations of a unit's Verilog, simulated by its testbench.

Yosys's `mutate` inverts a wire, ties it to a constant, or lets another bit control it. All mutants
of a unit are compiled into one simulator; a number given to the simulation selects one of them, and
number 0 selects the original design. A mutant that no test detects is compared with the original
(`testbenches.mutant_proof`). If it is not equivalent, and inside an operator, the operator's own
trial runs on it (`testbenches.operator_mutant`).
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
TIMEOUT_RATIO, LEAST_SECONDS = 20, 60
"""Time limit of a mutant: a multiple of the original's time, and a minimum in seconds."""


class Outcome(StrEnum):
    """Outcome of a mutant."""

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
        Number in the simulator, 1 or more.
    change : str
        Yosys's mutation mode: ``inv``, ``const0``, ``const1``, ``cnot0``, ``cnot1``.
    place : str
        Mutated cell, port and bit.
    source : tuple[str, ...]
        Python source lines.
    outcome : Outcome
    found_by : str
        The failure that killed it, or the finding of a trial; for a survivor, a description of the
        attempted proof.
    """

    number: int
    change: str
    place: str
    source: tuple[str, ...]
    outcome: Outcome
    found_by: str = ""


@dataclass(frozen=True, kw_only=True)
class MutationResult:
    """Content of ``mutate.json``; `verilog_digest` as in `SimulationResult`."""

    top: str
    preset: str
    seed: int
    verilog_digest: str
    mutants: tuple[Mutant, ...]

    @property
    def file(self) -> Path:
        """Path of the result."""
        return BUILD / self.top / self.preset / "mutate.json"

    def count(self, outcome: Outcome) -> int:
        """Count the mutants with one outcome."""
        return sum(mutant.outcome is outcome for mutant in self.mutants)

    @property
    def values(self) -> dict[str, Any]:
        """The content to write, including the number of mutants of each outcome."""
        outcomes = {str(outcome): self.count(outcome) for outcome in Outcome}
        return asdict(self) | {"outcomes": outcomes}

    @property
    def found(self) -> int:
        """Number of mutants that the testbench, or an operator's trial, detects."""
        return sum(map(self.count, (Outcome.KILLED, Outcome.TIMED_OUT, Outcome.BY_TRIAL)))

    @property
    def score(self) -> float | None:
        """Share of detected mutants among those not proven equivalent; None if there are none."""
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
        Name of a preset, or parameter object of the unit; see `Entry.named`.
    count, seed : int
        Number of mutants, and seed of their selection.
    progress : Callable[[str, int], None]
        Called after each step with a description and the number of decided mutants.

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
        # The mutants of a composed unit are those of its parts, so their gate-level form is not
        # needed.
        form = quick_form(entry.top, preset)
        emission = Emission(top=unit, name=entry.top, sources=True, target=form)
        ports = emission.modules[-1].ports
        commands = random_mutations(emission, directory, count=count, seed=seed)
        sources = _all_in_one(entry.top, ports, commands, directory)
        prepare(entry, parameters)
        operators = operators_among(emission.modules)
        job = _Job(entry, preset, parameters, directory, ports, tuple(sources), seed, operators)
        progress("compiling", 0)
        original = job.run(0, None)
        if not original.passed:
            raise UserError(f"{entry.top} fails without any mutation: {original.first_failure}")
        limit = max(LEAST_SECONDS, TIMEOUT_RATIO * original.seconds)
        mutants = []
        # Separate processes: cocotb's runner uses environment variables.
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
    """Common data of all mutants of one run."""

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
    """Simulate a mutant; if it survives, try a proof of equivalence, then a trial."""
    # One failure is sufficient.
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
        if not equal and (found := found_by_trial(top, command, directory, number, job.operators)):
            outcome, found_by = Outcome.BY_TRIAL, found
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


def random_mutations(emission: Emission, directory: Path, *, count: int, seed: int) -> list[str]:
    """Write the flat design, also as gates, and return commands that each apply one mutation.

    In a composed unit, parts that have testbenches of their own are excluded, unless nothing else
    remains: their mutants belong to those testbenches.
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
        # Cells of the flat design only: no instances, and no cells that only feed ignored inputs.
        selection = f"mutate -list {count} -seed {seed} -o own_mutations @cells t:$* %i"
        run_yosys([*own, "select -set cells -read cells", selection], directory=directory)
    lower(whole.name, whole.ports, directory / "flat.il", directory)
    chosen = directory / "own_mutations"
    if not chosen.exists() or not chosen.read_text():
        chosen = directory / "mutations"
    return chosen.read_text().splitlines()


def _all_in_one(
    top: str, ports: Sequence[Port], commands: Sequence[str], directory: Path
) -> list[Path]:
    """Write Verilog that contains every mutant, and a top module that selects one by number."""
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
