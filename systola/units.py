"""All units: those of the catalog, and those that installed packages add by entry points.

A package adds a unit by an entry point of the group `systola.units`. Its name is that of the unit's
module, and its value refers to a `PackagedUnit`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from hdl.catalog import CATALOG
from hdl.entry import Entry
from hdl.errors import UserError, unknown
from hdl.unit import Unit
from systola import environment

GROUP = "systola.units"


@dataclass(frozen=True, kw_only=True)
class PackagedUnit(Entry):
    """A unit of another package; the last part of its module's name is its name.

    Parameters
    ----------
    bench : str
        Full name of the module with its cocotb tests.
    """

    bench: str

    @property
    def testbench(self) -> str:
        """Module name of the testbench."""
        return self.bench

    @property
    def paper(self) -> str:
        """The package."""
        return self.unit.__module__.partition(".")[0]

    @property
    def files(self) -> dict[str, PurePosixPath]:
        """No file is in this project."""
        return {}

    @property
    def digest(self) -> str:
        """Twelve digits of the SHA-256 of all modules of the packages of unit and testbench."""
        found = hashlib.sha256()
        for package in sorted({self.paper, self.bench.partition(".")[0]}):
            for file in _modules(package):
                found.update(hashlib.sha256(file.read_bytes()).digest())
        return found.hexdigest()[:12]

    @property
    def _module(self) -> PurePosixPath:
        return PurePosixPath(*self.unit.__module__.split("."))


def _modules(package: str) -> list[Path]:
    """Return the files of a package, or of a module."""
    spec = find_spec(package)
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin)] if spec.origin else []
    return [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]


def unit_named(top: str) -> Entry:
    """Return the entry of a unit of the catalog or of an installed package.

    Raises
    ------
    UserError
        If no unit has this name, or the package's entry is not usable.
    """
    own = {entry.top: entry for entry in CATALOG}
    if top in own:
        return own[top]
    points = _points()
    if top not in points:
        raise UserError(unknown("TOP", top, [*own, *points]))
    return _loaded(points[top])


def all_units() -> Iterator[Entry]:
    """Yield the units of the catalog, then those of packages.

    Raises
    ------
    UserError
        If a package's entry is not usable.
    """
    yield from CATALOG
    yield from map(_loaded, _points().values())


def simulation_groups(entry: Entry) -> tuple[str, ...]:
    """Return the groups of packages that a simulation of a unit needs.

    The testbench of a package's unit has its own data, and its package requires what it imports.
    """
    return ("sim",) if isinstance(entry, PackagedUnit) else environment.SIMULATION


def _points() -> dict[str, EntryPoint]:
    """Return the entry points by name, which no other unit has."""
    found: dict[str, EntryPoint] = {}
    own = {entry.top for entry in CATALOG}
    for point in entry_points(group=GROUP):
        if point.name in own or found.get(point.name, point).value != point.value:
            raise UserError(f"two packages must not define the same unit {point.name!r}")
        found[point.name] = point
    return found


def _loaded(point: EntryPoint) -> PackagedUnit:
    """Return the checked entry of an entry point."""
    what = f"the entry point {point.name} of {GROUP}"
    try:
        entry: Any = point.load()
    # What a package raises when it is imported is its own affair.
    except Exception as error:
        raise UserError(f"{what} must be importable: {type(error).__name__}: {error}") from error
    if not isinstance(entry, PackagedUnit):
        raise UserError(f"{what} must be a systola.units.PackagedUnit, not {entry!r}")
    if not (isinstance(entry.unit, type) and issubclass(entry.unit, Unit)):
        raise UserError(f"{what} must have a subclass of hdl.unit.Unit, not {entry.unit!r}")
    if entry.top != point.name:
        raise UserError(f"{what} must have the name of the unit's module, {entry.top!r}")
    if not entry.presets:
        raise UserError(f"{what} must have a preset, not none")
    try:
        bench = find_spec(entry.bench)
    except ModuleNotFoundError:
        bench = None
    if bench is None:
        raise UserError(f"{what} must have a testbench that exists, not {entry.bench!r}")
    return entry
