"""The programs of a layout, from Debian packages without root."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl.errors import UserError
from synth.debian import LIBRARIES, OSU018, Program, debian_package

PARAMETERS = str(Path(OSU018).parent / "osu018.par")
"""Graywolf's parameters: rules for the annealing, with the pitches of OSU018."""


TECHNOLOGY = str(Path(OSU018).parent / "SCN6M_SUBM.10.tech")
"""Magic's technology of OSU018: layers, design rules, and numbers of the layers in GDS."""


@dataclass(frozen=True, kw_only=True)
class Placer:
    """Graywolf, and the text of its parameter file."""

    program: Program
    parameters: str


@dataclass(frozen=True, kw_only=True)
class Router:
    """Tcl's shell with the folder of qrouter's library."""

    program: Program
    library: Path


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Tcl's shell, the roots of Magic's and netgen's files, and Magic's technology."""

    shell: Program
    magic: Path
    netgen: Path
    technology: Path


def find_placer(*, fetch: bool = True) -> Placer:
    """Return graywolf.

    Raises
    ------
    UserError
        If a package is neither installed nor provided by apt.
    """
    program = _package("graywolf", "usr/bin/graywolf", fetch)
    libraries = [
        _package("libycadgraywolf1", f"{LIBRARIES}/libycadgraywolf.so.1", fetch) / LIBRARIES,
        _package("libgsl27", f"{LIBRARIES}/libgsl.so.27", fetch) / LIBRARIES,
        _package("libgslcblas0", f"{LIBRARIES}/libgslcblas.so.0", fetch) / LIBRARIES,
    ]
    parameters = _package("qflow-tech-osu018", PARAMETERS, fetch) / PARAMETERS
    return Placer(
        program=Program(
            path=program / "usr/bin/graywolf",
            environment=_search(libraries) | {"TWDIR": str(program / "usr/lib/graywolf")},
        ),
        parameters=parameters.read_text(),
    )


def find_router(*, fetch: bool = True) -> Router:
    """Return qrouter, which Tcl's shell loads.

    The wrapper ``qrouter`` has the path of its library compiled in, so it is not used.

    Raises
    ------
    UserError
        If a package is neither installed nor provided by apt.
    """
    library = _package("qrouter", "usr/lib/qrouter/qrouter.so", fetch) / "usr/lib/qrouter"
    shell = _tcl_shell(fetch)
    environment = shell.environment | {"QROUTER_LIB_DIR": str(library)}
    return Router(program=Program(path=shell.path, environment=environment), library=library)


def find_checker(*, fetch: bool = True) -> Checker:
    """Return Magic and netgen.

    The wrappers ``magic`` and ``netgen-lvs`` have paths compiled in, so they are not used.

    Raises
    ------
    UserError
        If a package is neither installed nor provided by apt.
    """
    magic = _package("magic", f"{LIBRARIES}/magic/tcl/tclmagic.so", fetch)
    netgen = _package("netgen-lvs", "usr/lib/netgen/tcl/tclnetgen.so", fetch)
    technology = _package("qflow-tech-osu018", TECHNOLOGY, fetch) / TECHNOLOGY
    return Checker(shell=_tcl_shell(fetch), magic=magic, netgen=netgen, technology=technology)


def layout_checker(*, fetch: bool) -> Checker | None:
    """Return Magic and netgen, or None if one can neither be found nor fetched."""
    try:
        return find_checker(fetch=fetch)
    except UserError:
        return None


def layout_programs(*, fetch: bool) -> tuple[Placer, Router] | None:
    """Return the programs of a layout, or None if one can neither be found nor fetched."""
    try:
        return find_placer(fetch=fetch), find_router(fetch=fetch)
    except UserError:
        return None


def _tcl_shell(fetch: bool) -> Program:
    """Return Tcl's shell."""
    installed = shutil.which("tclsh8.6")
    if installed:
        return Program(path=Path(installed))
    shell = _package("tcl8.6", "usr/bin/tclsh8.6", fetch) / "usr/bin/tclsh8.6"
    tcl = _package("libtcl8.6", f"{LIBRARIES}/libtcl8.6.so", fetch)
    environment = _search([tcl / LIBRARIES])
    environment["TCL_LIBRARY"] = str(tcl / "usr/share/tcltk/tcl8.6")
    return Program(path=shell, environment=environment)


def _package(name: str, provides: str, fetch: bool) -> Path:
    """Return the root of a package's files."""
    found = debian_package(name, provides=provides, fetch=fetch)
    if not found:
        raise UserError(
            f"layout needs Debian's package {name}: 'apt-get install {name}' provides it, and "
            "'apt-get download' is tried without root"
        )
    return found


def _search(folders: Sequence[Path]) -> dict[str, str]:
    """Return the environment in which programs find libraries in folders."""
    known = os.environ.get("LD_LIBRARY_PATH")
    paths = [*map(str, folders), *([known] if known else [])]
    return {"LD_LIBRARY_PATH": ":".join(paths)}
