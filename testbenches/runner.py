"""Run a unit's testbench: emission, compilation, simulation, and the record of the result."""

import contextlib
import json
import logging
import pickle
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from junitparser import JUnitXml

from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.parameters import require_choice
from hdl.paths import BUILD, BUILD_VARIABLE, locked, replace_text
from hdl.target import Target
from synth.liberty import find_library
from synth.netlist import mapped_sources
from testbenches import coverage, simulators, waves
from testbenches.bench import CONTEXT_VARIABLE, FACTS_FILE, PARAMETERS_FILE

TINY_SECONDS, SECONDS, LONG_SECONDS = 600, 3600, 12 * 3600
"""Time limits in seconds: for the tiny presets, which take seconds on an idle machine; for presets
that take minutes; and for presets that take longer, and parameter objects without a preset."""

SLOW = 6
"""Factor on the time limit for long versions, netlists, and four-state simulation."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Settings of a simulation.

    Parameters
    ----------
    simulator : str
        ``"verilator"`` or ``"icarus"``.
    seed : int, optional
        Seed of the testbench and of the initial state; random if absent. The result contains it.
    waves : bool
        Record a waveform.
    fst : bool
        The waveform of Verilator is FST, which is smaller, instead of VCD.
    coverage : bool
        Measure line, toggle and functional coverage (Verilator only).
    full : bool
        Run the long versions of the testbench's tests.
    seconds : float, optional
        Time limit; `time_limit` or `TINY_SECONDS` if absent.
    netlist : bool
        Simulate the unit mapped to a cell library instead of its RTL.
    liberty : str, optional
        Cell library of the netlist; the default of `synth.liberty.find_library` if absent.
    target : Target
        Target of the emitted Verilog.
    only : str, optional
        Regular expression that selects tests of the testbench by name.
    plusargs : tuple[str, ...]
        Arguments that the Verilog reads by `$value$plusargs`.
    lint : bool
        Treat Verilator's warnings as errors (Verilator only).
    """

    simulator: str = "verilator"
    seed: int | None = None
    waves: bool = False
    fst: bool = False
    coverage: bool = False
    full: bool = False
    seconds: float | None = None
    netlist: bool = False
    liberty: str | None = None
    target: Target = Target.ASIC
    only: str | None = None
    plusargs: tuple[str, ...] = ()
    lint: bool = False

    def __post_init__(self) -> None:
        """Check every rule."""
        require_choice("SIM", self.simulator, simulators.SIMULATORS)
        if self.coverage and self.simulator != "verilator":
            raise ValueError(f"COVERAGE=1 needs SIM=verilator, not {self.simulator!r}")
        if self.netlist and self.target is not Target.ASIC:
            raise ValueError(f"NETLIST=1 needs TARGET=asic, not {self.target.value!r}")
        if self.lint and (self.simulator != "verilator" or self.netlist):
            raise ValueError("lint must be of RTL in Verilator, not of a netlist or in Icarus")

    @property
    def result_name(self) -> str:
        """Stem of the result's files: ``sim``, ``netlist_sim`` or ``fpga_sim``."""
        if self.netlist:
            return "netlist_sim"
        return "sim" if self.target is Target.ASIC else f"{self.target}_sim"


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """Content of ``sim.json``, or of the JSON file that `Request.result_name` names.

    Parameters
    ----------
    preset, parameters : str
        Name of the preset, and Python's representation of the parameter object.
    verilog_digest : str
        Digest of the simulated or mapped RTL, see `hdl.digest.verilog_digest`.
    liberty : str
        Cell library of the netlist; empty for RTL.
    utilization : float | None
        Ideal over actual cycles of the unit's steady-state work.
    values_checked, mismatches : int
        Number of values compared with the golden model, and number of differences.
    """

    top: str
    preset: str
    parameters: str
    verilog_digest: str
    liberty: str
    simulator: str
    seed: int
    passed: bool
    tests: int
    failures: int
    values_checked: int
    mismatches: int
    cycles: int
    ideal_cycles: int
    utilization: float | None
    tensors: str
    seconds: float
    sim_cycles_per_second: float
    first_failure: str
    facts: dict[str, Any]
    outputs: tuple[str, ...]


def time_limit(entry: Entry, preset: str, request: Request) -> float:
    """Return the time limit of a simulation in seconds, sufficient on a slow and busy machine."""
    if request.seconds is not None:
        return request.seconds
    seconds = TINY_SECONDS if preset.startswith("tiny") else SECONDS
    if preset in entry.long or preset not in entry.presets:
        seconds = LONG_SECONDS
    slow = request.full or request.netlist or request.simulator == "icarus"
    return SLOW * seconds if slow else seconds


def prepare(entry: Entry, parameters: Any) -> None:
    """Compute the data that the testbench reads, such as captured tensors."""
    testbench = import_module(entry.testbench)
    if hasattr(testbench, "prepare"):
        testbench.prepare(parameters)


def simulate(entry: Entry, dimensions: str | Any, request: Request) -> SimulationResult:
    """Emit, compile and run one unit, and write ``sim.json`` and ``junit.xml``.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        Name of a preset, or parameter object of the unit; see `Entry.named`.
    request : Request
        Settings of the simulation.

    Returns
    -------
    SimulationResult
        The result; a failed test does not raise an error.

    Raises
    ------
    UserError
        If the preset is too large to simulate, the simulation cannot start, or it runs no test.
    """
    if dimensions in entry.emitted:
        raise UserError(f"PRESET={dimensions} of {entry.top} is emitted and linted only")
    # An invalid library is reported before the long work.
    library = find_library(request.liberty) if request.netlist else None
    preset, parameters = entry.named(dimensions)
    home = BUILD / entry.top / preset
    # The result directory has room for one run at a time.
    with locked(home.with_name(f".{preset}.lock")):
        emitted = emit_unit(entry, dimensions, request.target)
        verilog = list(emitted.verilog)
        if library:
            # The folder `netlist` has the netlist of `make synth`, of another form or library.
            verilog = mapped_sources(verilog, entry.top, library, home / "simulated_netlist")
        prepare(entry, parameters)
        return run_testbench(
            top=entry.top,
            preset=preset,
            parameters=parameters,
            testbench=entry.testbench,
            ports=emitted.ports,
            verilog=verilog,
            home=home,
            request=replace(request, seconds=time_limit(entry, preset, request)),
            name=request.result_name,
            digest=emitted.digest,
            liberty=library.name if library else "",
        )


def run_testbench(
    *,
    top: str,
    preset: str,
    parameters: Any,
    testbench: str,
    ports: Sequence[Any],
    verilog: Sequence[Path],
    home: Path,
    request: Request,
    name: str = "sim",
    digest: str = "",
    liberty: str = "",
) -> SimulationResult:
    """Run one testbench on given Verilog files.

    Parameters
    ----------
    preset : str
        Name of the preset.
    parameters : Any
        Parameter object that the testbench receives.
    name : str
        Stem of the result files in `home`: ``<name>.json``, ``<name>/``.
    digest, liberty : str
        `SimulationResult.verilog_digest` and `SimulationResult.liberty`.

    Raises
    ------
    UserError
        If the simulation cannot start, or runs no test.
    """
    seed = request.seed if request.seed is not None else random.SystemRandom().getrandbits(31)
    directory = home / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    settings = {
        "top": top,
        "preset": preset,
        "seed": seed,
        "full": request.full,
        "coverage": request.coverage,
        "simulator": request.simulator,
        "seconds": request.seconds or TINY_SECONDS,
        "directory": str(directory),
    }
    (directory / "context.json").write_text(json.dumps(settings, indent=2))
    (directory / PARAMETERS_FILE).write_bytes(pickle.dumps(parameters))
    runner, build_directory = simulators.build(
        simulator=request.simulator,
        top=top,
        ports=ports,
        verilog=verilog,
        waves=request.waves,
        coverage=request.coverage,
        fst=request.fst,
        lint=request.lint,
    )
    logging.getLogger(type(runner).__qualname__).setLevel(logging.WARNING)
    started = time.monotonic()
    with simulators.environment(), contextlib.suppress(SystemExit, RuntimeError):
        runner.test(
            test_module=testbench,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=build_directory,
            test_dir=directory,
            results_xml=str(directory / "junit.xml"),
            seed=seed,
            test_filter=request.only,
            waves=request.waves,
            test_args=simulators.runtime_arguments(request.simulator, seed),
            # By default, Icarus writes the waveform to the build directory.
            plusargs=[f"+dumpfile_path={directory / 'dump.fst'}", *request.plusargs],
            timescale=("1ns", "1ps"),
            log_file=directory / "simulation.log",
            extra_env={
                CONTEXT_VARIABLE: str(directory / "context.json"),
                # By default, cocotb rewrites the assertions of every module that is imported.
                "COCOTB_REWRITE_ASSERTION_FILES": "tb_*.py",
                # Assertions are rewritten by pytest, which would import its plugins as well.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                # The simulation has another working directory.
                BUILD_VARIABLE: str(BUILD),
            },
        )
    seconds = time.monotonic() - started
    tests, failures = _read_results(directory)
    facts = _read_facts(directory)
    cycles, ideal = facts.pop("cycles", 0), facts.pop("ideal_cycles", 0)
    outputs = [directory / "junit.xml", directory / "simulation.log"]
    if request.waves:
        outputs += waves.write_view(directory, top, ports)
    bins = facts.pop("bins", {})
    if request.coverage:
        outputs += coverage.write_report(directory, bins)
        facts["functional coverage"] = coverage.share(bins)
    mismatches = facts.pop("mismatches", 0)
    result = SimulationResult(
        top=top,
        preset=preset,
        parameters=repr(parameters),
        verilog_digest=digest,
        liberty=liberty,
        simulator=request.simulator,
        seed=seed,
        passed=not failures and not mismatches,
        tests=tests,
        failures=len(failures),
        values_checked=facts.pop("values_checked", 0),
        mismatches=mismatches,
        cycles=cycles,
        ideal_cycles=ideal,
        utilization=round(ideal / cycles, 4) if cycles else None,
        tensors=facts.pop("tensors", "none"),
        seconds=round(seconds, 2),
        sim_cycles_per_second=round(facts.pop("simulated_cycles", 0) / seconds, 1),
        first_failure=failures[0] if failures else "",
        facts=facts,
        outputs=tuple(str(file) for file in outputs),
    )
    replace_text(home / f"{name}.json", json.dumps(asdict(result), indent=2) + "\n")
    return result


def _read_results(directory: Path) -> tuple[int, list[str]]:
    """Return the number of tests and the message of each failure; refuse a run without tests."""
    results = directory / "junit.xml"
    if not results.exists():
        lines = (directory / "simulation.log").read_text().strip().splitlines()
        # Report the current test. A terminated simulator prints its call stack, latest call first.
        running = [line.split("running ")[1] for line in lines if " running " in line]
        where = f" in {running[-1]}" if running else ""
        ended = [i for i, line in enumerate(lines) if line.startswith("Timeout")]
        tail = lines[ended[0] :][:15] if ended else lines[-15:]
        raise UserError(f"the simulation wrote no results{where}:\n" + "\n".join(tail))
    report = JUnitXml.fromfile(str(results))
    cases = [case for suite in report for case in suite]
    failures = [
        f"{case.name}: {(item.message or item.text or '').strip()}"
        for case in cases
        for item in case.result
        if type(item).__name__ in ("Failure", "Error")
    ]
    ran = [case for case in cases if not case.is_skipped]
    if not ran:
        raise UserError(f"no test ran, see {directory / 'simulation.log'}")
    return len(ran), failures


def _read_facts(directory: Path) -> dict[str, Any]:
    facts = directory / FACTS_FILE
    return json.loads(facts.read_text()) if facts.exists() else {}
