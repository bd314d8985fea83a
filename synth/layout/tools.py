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


def find_placer(*, fetch: bool = True) -> Placer:
    """Return graywolf.

    Raises
    ------
    UserError
        If a package is neither installed nor provided by apt.
    """
    program = package_root("graywolf", "usr/bin/graywolf", fetch)
    libraries = [
        package_root("libycadgraywolf1", f"{LIBRARIES}/libycadgraywolf.so.1", fetch) / LIBRARIES,
        package_root("libgsl27", f"{LIBRARIES}/libgsl.so.27", fetch) / LIBRARIES,
        package_root("libgslcblas0", f"{LIBRARIES}/libgslcblas.so.0", fetch) / LIBRARIES,
    ]
    parameters = package_root("qflow-tech-osu018", PARAMETERS, fetch) / PARAMETERS
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
    library = package_root("qrouter", "usr/lib/qrouter/qrouter.so", fetch) / "usr/lib/qrouter"
    shell = shutil.which("tclsh8.6")
    environment = {"QROUTER_LIB_DIR": str(library)}
    if not shell:
        shell = str(package_root("tcl8.6", "usr/bin/tclsh8.6", fetch) / "usr/bin/tclsh8.6")
        tcl = package_root("libtcl8.6", f"{LIBRARIES}/libtcl8.6.so", fetch)
        environment |= _search([tcl / LIBRARIES])
        environment["TCL_LIBRARY"] = str(tcl / "usr/share/tcltk/tcl8.6")
    return Router(program=Program(path=Path(shell), environment=environment), library=library)


def layout_programs(*, fetch: bool) -> tuple[Placer, Router] | None:
    """Return the programs of a layout, or None if one can neither be found nor fetched."""
    try:
        return find_placer(fetch=fetch), find_router(fetch=fetch)
    except UserError:
        return None


def package_root(name: str, provides: str, fetch: bool) -> Path:
    """Return the root of a package's files.

    Raises
    ------
    UserError
        If the package is neither installed nor provided by apt.
    """
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
