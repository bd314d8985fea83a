"""Debian packages that the flows use, for a user who may not be root.

An installed package is used where it is. Otherwise the package is fetched with ``apt-get download``
and unpacked under ``build/debian/``, which needs neither root nor a change to the system. Set-up
fetches all of them once: ``python -m synth.debian``.
"""

import getpass
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

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
    """Return the directory under which a package's files are, or None if it cannot be had.

    Parameters
    ----------
    name : str
        The package.
    provides : str
        A file of the package, relative to the root of the file system, that proves it is there.
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
            unpacked.mkdir(parents=True, exist_ok=True)
            _download(name, unpacked)
            for archive in unpacked.glob("*.deb"):
                unpack = ["dpkg-deb", "-x", archive, unpacked]
                subprocess.run(unpack, capture_output=True, check=False)
                archive.unlink()
    return unpacked if (unpacked / provides).exists() else None


def _download(name: str, directory: Path) -> None:
    """Fetch a package; where the machine's lists of packages are empty or old, with own lists."""
    lists, cache = UNPACKED / "lists", UNPACKED / "cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]
    # Without root there is no user whom apt could become.
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

    An unpacked compiler has to be told where its parts are: ``IVERILOG_HOME`` in the environment
    is that directory, for the option ``-B``.
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


def osu018(*, fetch: bool = True) -> Path | None:
    """Return OSU018's liberty file, or None if it can neither be found nor fetched."""
    package = debian_package("qflow-tech-osu018", provides=OSU018, fetch=fetch)
    return package / OSU018 if package else None


def missing(*, fetch: bool = False) -> dict[str, str]:
    """Return what is not there, and what cannot be done without it."""
    found = {
        "Icarus Verilog": (icarus(fetch=fetch), "simulation in four states, SIM=icarus"),
        "OpenSTA": (opensta(fetch=fetch), "timing and power"),
        "OSU018": (
            osu018(fetch=fetch),
            "areas and delays without LIBERTY=",
        ),
    }
    return {name: without for name, (there, without) in found.items() if there is None}


if __name__ == "__main__":
    for name, without in missing(fetch=True).items():
        print(f"{name} cannot be had by apt; without it there is no: {without}")
