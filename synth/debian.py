"""Debian packages that the flows use; a user without root can have them.

The flows use an installed package. Otherwise they fetch the package with ``apt-get download`` and
unpack it under ``build/debian/``, which needs neither root nor a change to the system: when a verb
first needs it, or by ``make setup``.
"""

import getpass
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import BUILD, locked

SYSTEM = Path("/")
UNPACKED = BUILD / "debian"
LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
OSU018 = "usr/share/qflow/tech/osu018/osu018_stdcells.lib"
"""The cell library that any Debian machine can have."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program and the environment that it needs.

    Parameters
    ----------
    path : Path
        The executable.
    environment : dict[str, str]
        Variables to add to the caller's.
    """

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """Run the program and return what it printed."""
        return subprocess.run(
            [str(self.path), *arguments],
            cwd=directory,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )


def debian_package(name: str, *, provides: str, fetch: bool = True) -> Path | None:
    """Return the directory that contains a package's files, or None if apt does not provide it.

    Parameters
    ----------
    name : str
        The package.
    provides : str
        A file of the package, relative to the root of the file system.
    fetch : bool
        Whether to ask apt for a package that is not installed.
    """
    unpacked = UNPACKED / name
    for root in (SYSTEM, unpacked):
        if (root / provides).exists():
            return root
    if not fetch or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return None
    with locked(UNPACKED / ".lock"):
        if not (unpacked / provides).exists():
            with tempfile.TemporaryDirectory(dir=UNPACKED, prefix=".unpack-") as scratch:
                _unpack(name, Path(scratch), unpacked)
    return unpacked if (unpacked / provides).exists() else None


def _unpack(name: str, scratch: Path, unpacked: Path) -> None:
    """Fetch a package, and rename the folder of its files when they are complete.

    Raises
    ------
    UserError
        If dpkg-deb fails, as on a full disk.
    """
    _download(name, scratch)
    files = scratch / "files"
    for archive in scratch.glob("*.deb"):
        child = subprocess.run(
            ["dpkg-deb", "-x", archive, files], capture_output=True, text=True, check=False
        )
        if child.returncode != 0:
            reason = (child.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"Debian's package {name} must be unpacked in {unpacked}: {reason}")
        shutil.rmtree(unpacked, ignore_errors=True)
        files.rename(unpacked)


def _download(name: str, directory: Path) -> None:
    """Fetch a package; if the machine's lists of packages are empty or old, with own lists."""
    lists, cache = UNPACKED / "lists", UNPACKED / "cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]
    # Without root, apt cannot change to its own user.
    own += ["-o", f"APT::Sandbox::User={getpass.getuser()}"]
    for command in (
        ["apt-get", "download", "-qq", name],
        ["apt-get", *own, "update", "-qq"],
        ["apt-get", *own, "download", "-qq", name],
    ):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=directory, capture_output=True, check=False, timeout=300)
        if any(directory.glob("*.deb")):
            return


def opensta(*, fetch: bool = True) -> Program | None:
    """Return OpenSTA, or None if it can neither be found nor fetched."""
    installed = shutil.which("sta")
    if installed:
        return Program(path=Path(installed))
    package = debian_package("opensta", provides="usr/bin/sta", fetch=fetch)
    tcl = debian_package("libtcl8.6", provides=f"{LIBRARIES}/libtcl8.6.so", fetch=fetch)
    if not package or not tcl:
        return None
    return Program(
        path=package / "usr/bin/sta",
        environment={
            "LD_LIBRARY_PATH": str(tcl / LIBRARIES),
            "TCL_LIBRARY": str(tcl / "usr/share/tcltk/tcl8.6"),
        },
    )


def icarus(*, fetch: bool = True) -> tuple[Program, Program] | None:
    """Return Icarus Verilog's compiler and runtime, or None if they cannot be had.

    An unpacked compiler needs the directory of its parts: ``IVERILOG_HOME`` in the environment,
    for the option ``-B``.
    """
    compiler, runtime = shutil.which("iverilog"), shutil.which("vvp")
    if compiler and runtime:
        return Program(path=Path(compiler)), Program(path=Path(runtime))
    package = debian_package("iverilog", provides="usr/bin/iverilog", fetch=fetch)
    if not package:
        return None
    home = {"IVERILOG_HOME": str(package / LIBRARIES / "ivl")}
    programs = package / "usr/bin"
    return (
        Program(path=programs / "iverilog", environment=home),
        Program(path=programs / "vvp", environment=home),
    )


def compression(*, fetch: bool = True) -> list[Path] | None:
    """Return the folders with the headers and static libraries of LZ4 and zlib, or None.

    Verilator's writer of FST needs both. A folder has ``include`` and the machine's libraries.
    """
    found = [
        debian_package(name, provides=f"usr/include/{header}", fetch=fetch)
        for name, header in (("liblz4-dev", "lz4.h"), ("zlib1g-dev", "zlib.h"))
    ]
    return [folder / "usr" for folder in found if folder] if all(found) else None


def osu018(*, fetch: bool = True) -> Path | None:
    """Return OSU018's liberty file, or None if it can neither be found nor fetched."""
    package = debian_package("qflow-tech-osu018", provides=OSU018, fetch=fetch)
    return package / OSU018 if package else None


def missing(*, fetch: bool = False) -> dict[str, str]:
    """Return the missing programs and libraries, and what needs each."""
    # The module of the layout's programs imports this one.
    from synth.layout.tools import layout_programs

    found = {
        "Icarus Verilog": (icarus(fetch=fetch), "simulation in four states, SIM=icarus"),
        "LZ4, zlib": (compression(fetch=fetch), "waveforms of Verilator as FST, WAVES=fst"),
        "OpenSTA": (opensta(fetch=fetch), "timing and power"),
        "OSU018": (
            osu018(fetch=fetch),
            "areas and delays without LIBERTY=",
        ),
        "graywolf, qrouter": (layout_programs(fetch=fetch), "placement and routing, layout"),
    }
    return {name: without for name, (there, without) in found.items() if there is None}
