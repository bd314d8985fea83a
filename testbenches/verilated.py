"""Compile a design with Verilator and g++: few translation units, and a runtime that is shared."""

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import cocotb_tools.config

from hdl.paths import locked

COMPILER = "g++"

RUNTIME_HEADER = "".join(
    f"#include {name}\n"
    for name in (
        *("<memory>", "<string>", "<libgen.h>", "<stdio.h>"),
        *('"verilated.h"', '"verilated_dpi.h"', '"verilated_vpi.h"'),
    )
)
"""Header that every translation unit of every design includes, in precompiled form.

It is the same for all designs. Its parsing takes most of the compilation time of a small design.
"""

ALIAS_FLAGS = (
    "--param=sccvn-max-alias-queries-per-access=10",
    "--param=dse-max-alias-queries-per-store=8",
)
"""Limits of g++'s alias analysis over a model's thousands of stores.

The default limits double the compilation time and produce the same code.
"""

RATES = {"fast": ("-O1", *ALIAS_FLAGS), "slow": ("-O0",)}
"""Classes of files with separate flags: executed in every cycle, and executed once.

With -O1 a large design compiles in two thirds of the time of -O2 and runs as fast.
"""

RUNTIME_FLAGS = ("-Os",)

RUNTIME = ("verilated", "verilated_dpi", "verilated_threads", "verilated_vpi")
"""Parts of the runtime that nearly every design needs; a design without ports needs fewer."""

COMMON_FLAGS = ("-std=gnu++17", "-pthread", "-DVERILATOR=1", "-DVM_SC=0", "-DVM_TIMING=0")

UNIT_BYTES = 2_000_000
"""Size of C++ above which the files of one class are split into two translation units.

Small designs need one: the start of g++ takes as long as the compilation of all their files. The
units of a large design are compiled in parallel.
"""

MAIN = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
"""cocotb's main program, which is compiled with the model."""

WEAK = "#pragma weak main\n#pragma weak vlog_startup_routines_bootstrap\n"
"""Declarations before `MAIN`: another program with a `main` can be linked with the same model.

That program has no function of cocotb, so the reference to it has to be weak as well.
"""


SETTINGS = (RUNTIME_HEADER, RATES, RUNTIME_FLAGS, COMMON_FLAGS, UNIT_BYTES, WEAK)
"""All that decides how a model is compiled, except for the tools."""


class CompilationError(RuntimeError):
    """A tool rejected the design; its output is in the log."""


@dataclass(frozen=True)
class Model:
    """A design to compile.

    Parameters
    ----------
    directory : Path
        Directory of the C++ files, the object files and the executable.
    program : str
        Verilator.
    waves, coverage : bool
        Compile with support for waveforms, and for coverage.
    fst : Sequence[Path]
        Folders of LZ4 and zlib, see `synth.debian.compression`. With them waveforms are FST.
    """

    directory: Path
    program: str
    waves: bool
    coverage: bool
    fst: Sequence[Path] = ()

    @functools.cached_property
    def root(self) -> Path:
        """``VERILATOR_ROOT``, which contains Verilator's headers and its runtime."""
        command = [self.program, "--getenv", "VERILATOR_ROOT"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return Path(done.stdout.strip())

    @property
    def flags(self) -> list[str]:
        """Flags of g++ for all files that include a header of Verilator."""
        fst = bool(self.fst)
        kinds = {"TRACE": self.waves, "TRACE_VCD": self.waves and not fst, "TRACE_FST": fst}
        switches = [f"-DVM_{name}={there:d}" for name, there in kinds.items()]
        switches += ["-DVM_TRACE_SAIF=0", f"-DVM_COVERAGE={self.coverage:d}"]
        include = self.root / "include"
        headers = [include, include / "vltstd", *(folder / "include" for folder in self.fst)]
        return [*COMMON_FLAGS, *switches, *(f"-I{folder}" for folder in headers)]

    def classes(self, name: str) -> list[str]:
        """Return the stems of one list of C++ files that Verilator wrote."""
        text = (self.directory / "Vtop_classes.mk").read_text().replace("\\\n", " ")
        lists = re.findall(rf"^VM_{name} \+=(.*)$", text, re.M)
        return [stem for stems in lists for stem in stems.split()]

    def translate(self, top: str, sources: Sequence[Path], flags: Sequence[str], log: Path) -> None:
        """Write the C++ files of a design.

        Raises
        ------
        CompilationError
            If Verilator rejects the design.
        """
        command = [self.program, "--cc", "-Mdir", self.directory, "--top-module", top, "--vpi"]
        command += ["--prefix", "Vtop", "--timescale", "1ns/1ps"]
        command += ["--trace"] if self.waves and not self.fst else []
        with log.open("w") as file:
            _call([*command, *flags, *sources], file)

    def compile(self, top: str, runtimes: Path, log: Path) -> None:
        """Compile the C++ files, and link them with cocotb to an executable named `top`.

        Parameters
        ----------
        top : str
            Name of the top module.
        runtimes : Path
            Directory of the runtimes that all designs share.
        log : Path
            File to which the output of the tools is appended.

        Raises
        ------
        CompilationError
            If g++ fails.
        """
        runtime = self._runtime(runtimes, log)
        commands = []
        for rate, options in RATES.items():
            for index, text in enumerate(self._units(rate)):
                unit = self.directory / f"{rate}_{index}.cpp"
                unit.write_text(text)
                header = ["-include", runtime / f"{rate}.h"]
                files = ["-c", unit, "-o", unit.with_suffix(".o")]
                flags = [*self.flags, f"-I{self.directory}"]
                commands.append([COMPILER, *options, *flags, *header, *files])
        with log.open("a") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda command: _call(command, file), commands))
            # Programs that are linked later find them next to the model.
            for name in self._runtime_names():
                shutil.copy(runtime / f"{name}.o", self.directory)
            libraries = cocotb_tools.config.libs_dir
            # The reference to cocotb is weak, so the linker would drop the library as unneeded.
            cocotb = [f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-Wl,--no-as-needed"]
            command = [COMPILER, *self.objects, *cocotb, "-lcocotbvpi_verilator"]
            archives = [
                archive
                for folder, name in zip(self.fst, ("liblz4.a", "libz.a"), strict=False)
                for archive in (folder / "lib").glob(f"*/{name}")
            ]
            command += [*archives, "-pthread", "-latomic", "-o", self.directory / top]
            _call(command, file)

    @property
    def objects(self) -> list[Path]:
        """Object files of the model and of Verilator's runtime."""
        return sorted(self.directory.glob("*.o"))

    def _units(self, rate: str) -> list[str]:
        """Return the texts of the translation units of a class of files."""
        stems = self.classes(f"CLASSES_{rate.upper()}") + self.classes(f"SUPPORT_{rate.upper()}")
        sizes = {stem: self._size(f"{stem}.cpp") for stem in stems}
        units: list[list[str]] = [[] for _ in range(1 + (sum(sizes.values()) > UNIT_BYTES))]
        for stem in sorted(stems, key=lambda stem: -sizes[stem]):
            min(units, key=lambda unit: sum(sizes[stem] for stem in unit)).append(stem)
        texts = ["".join(f'#include "{stem}.cpp"\n' for stem in unit) for unit in units if unit]
        if rate == "fast":
            texts[-1] += f'{WEAK}#include "{MAIN}"\n'
        return texts

    def _size(self, name: str) -> int:
        """Return the size in bytes of a C++ file, and of files of the model that it includes."""
        file = self.directory / name
        included = re.findall(r'^#include "(Vtop\w*\.cpp)"', file.read_text(), re.M)
        return file.stat().st_size + sum(map(self._size, included))

    def _runtime_names(self) -> list[str]:
        """Return the stems of the runtime's files."""
        return sorted({*RUNTIME, *self.classes("GLOBAL_FAST"), *self.classes("GLOBAL_SLOW")})

    def _runtime(self, runtimes: Path, log: Path) -> Path:
        """Return the directory of the shared runtime; compile it unless it exists."""
        names = self._runtime_names()
        parts = (_version(COMPILER), self.root, self.flags, RATES, RUNTIME_HEADER, names)
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        directory = runtimes / f"runtime-{digest}"
        with locked(directory.with_name(f".{directory.name}.lock")):
            if directory.exists():
                return directory
            with tempfile.TemporaryDirectory(dir=runtimes, prefix=".runtime-") as scratch:
                new = Path(scratch, "new")
                new.mkdir()
                commands = []
                for name in names:
                    files = [self.root / "include" / f"{name}.cpp", "-o", new / f"{name}.o"]
                    commands.append([COMPILER, *RUNTIME_FLAGS, *self.flags, "-c", *files])
                for rate, options in RATES.items():
                    header = new / f"{rate}.h"
                    header.write_text(RUNTIME_HEADER)
                    files = ["-x", "c++-header", header, "-o", f"{header}.gch"]
                    commands.append([COMPILER, *options, *self.flags, *files])
                with log.open("a") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
                    list(pool.map(lambda command: _call(command, file), commands))
                new.rename(directory)
        return directory


@functools.cache
def _version(program: str) -> str:
    """Return the version that a compiler reports."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.partition("\n")[0]


def _call(command: Sequence[object], log: TextIO) -> None:
    """Run a tool; its output is appended to the log."""
    words = [str(word) for word in command]
    print(shlex.join(words), file=log, flush=True)
    done = subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise CompilationError(f"{Path(words[0]).name} ended with status {done.returncode}")
