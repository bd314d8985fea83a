"""The programs of DRC, LVS and GDS, Magic and netgen, from Debian packages without root."""

from dataclasses import dataclass
from pathlib import Path

from hdl.errors import UserError
from synth.debian import LIBRARIES, OSU018, Program, missing
from synth.layout.tools import find_router, package_root

TECHNOLOGY = str(Path(OSU018).parent / "SCN6M_SUBM.10.tech")
"""Magic's technology of OSU018: layers, design rules, and numbers of the layers in GDS."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Tcl's shell, the roots of Magic's and netgen's files, and Magic's technology."""

    shell: Program
    magic: Path
    netgen: Path
    technology: Path


def find_checker(*, fetch: bool = True) -> Checker:
    """Return Magic and netgen, which the same Tcl shell loads as qrouter.

    The wrappers ``magic`` and ``netgen-lvs`` have paths compiled in, so they are not used.

    Raises
    ------
    UserError
        If a package is neither installed nor provided by apt.
    """
    magic = package_root("magic", f"{LIBRARIES}/magic/tcl/tclmagic.so", fetch)
    netgen = package_root("netgen-lvs", "usr/lib/netgen/tcl/tclnetgen.so", fetch)
    technology = package_root("qflow-tech-osu018", TECHNOLOGY, fetch) / TECHNOLOGY
    return Checker(
        shell=find_router(fetch=fetch).program,
        magic=magic,
        netgen=netgen,
        technology=technology,
    )


def layout_checker(*, fetch: bool) -> Checker | None:
    """Return Magic and netgen, or None if one can neither be found nor fetched."""
    try:
        return find_checker(fetch=fetch)
    except UserError:
        return None


def missing_programs(*, fetch: bool = False) -> dict[str, str]:
    """Return the missing programs and libraries of all verbs, and what needs each.

    `synth.debian.missing` does not include Magic and netgen, so that a change of a layout's checks
    does not change the sources of simulations.
    """
    found = missing(fetch=fetch)
    if layout_checker(fetch=fetch) is None:
        found["Magic, netgen"] = "DRC, LVS and GDS, layout"
    return found
