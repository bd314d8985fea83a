"""The points of a sweep: a grid, a list, or random legal parameters."""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from hdl.entry import Entry
from hdl.errors import UserError, unknown
from hdl.parameter_list import descriptions
from hdl.parameters import Part, require_choice
from hdl.settings import dotted
from systola.exploration.constraint import parse_constraint
from systola.units import unit_named

VERBS = ("synth", "sim", "fpga")
"""The verbs that can measure a point."""

MOST_VALUES = 10_000
"""Maximum number of values of one range, and of points of one sweep."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:([:*])(\d+))?")
_KEYS = {"top", "preset", "for", "grid", "list", "random", "seed", "seeds", "where"}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The parameters of one unit to vary, and the verbs that measure each point.

    Parameters
    ----------
    name : str
        Name of the sweep and of its folder of results.
    top : str
        The unit.
    preset : str, optional
        The preset that the sweep modifies; the unit's default if it is not given.
    verbs : tuple[str, ...]
        Verbs of `VERBS`.
    grid : Mapping[str, tuple[Any, ...]]
        Values by parameter; every combination is a point.
    points : tuple[Mapping[str, Any], ...]
        Explicit changes; each is combined with the grid.
    random : int
        Number of additional random legal points, which are not combined with the grid.
    seed : int
        Seed of the random points, and the first seed of the simulations.
    seeds : int
        Simulations per point, with consecutive seeds.
    where : str
        A condition that selects points, see `constraint`; empty for none.
    """

    name: str
    top: str
    preset: str | None = None
    verbs: tuple[str, ...] = ("synth", "sim")
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    points: tuple[Mapping[str, Any], ...] = ()
    random: int = 0
    seed: int = 1
    seeds: int = 1
    where: str = ""

    def __post_init__(self) -> None:
        """Check every rule."""
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", self.name):
            raise UserError(
                f"a sweep's name must consist of letters, digits, _ and -, not {self.name!r}"
            )
        for verb in self.verbs:
            require_choice("FOR", verb, VERBS)
        if not self.verbs:
            raise UserError(f"FOR must be one or more of {', '.join(VERBS)}, not ''")
        for what, value, least in (
            ("SEEDS", self.seeds, 1), ("random", self.random, 0), ("seed", self.seed, 0),
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"{what} must be an integer of at least {least}, not {value!r}")
        if not (self.grid or self.points or self.random):
            raise UserError("SWEEP must vary something, such as lanes=4,8,16")


@dataclass(frozen=True, kw_only=True)
class Points:
    """The legal and illegal combinations of a sweep.

    Parameters
    ----------
    entry : Entry
        The unit.
    legal : Mapping[str, Any]
        Distinct parameter objects by name.
    illegal : Mapping[str, str]
        Message of the violated rule, by the settings of each illegal combination.
    excluded : int
        Number of legal combinations that the condition excludes.
    """

    entry: Entry
    legal: Mapping[str, Any]
    illegal: Mapping[str, str]
    excluded: int


def values_of(parameters: Any) -> dict[str, Any]:
    """Return every parameter's value by path, in the form for tables and conditions."""
    values: dict[str, Any] = {}
    for parameter in descriptions(type(parameters)):
        if not isinstance(parameter.field.rule, Part):
            text = parameter.value(parameters)
            values[parameter.path] = int(text) if re.fullmatch(r"-?\d+", text) else text
    return values


def expand(sweep: Sweep) -> Points:
    """Build the parameter objects of a sweep; combinations that violate a rule are omitted.

    Raises
    ------
    UserError
        If the unit, the preset or a parameter does not exist, a value has the wrong type, or no
        legal point remains.
    """
    # Imported here, because the import is slow.
    from testbenches.draws import draw

    entry = unit_named(sweep.top)
    entry.parameters(sweep.preset or entry.default)
    holds = parse_constraint(sweep.where) if sweep.where else lambda _: True
    legal: dict[str, Any] = {}
    illegal: dict[str, str] = {}
    excluded = 0
    generator = random.Random(sweep.seed)
    found: list[Any] = [draw(entry, generator)[0] for _ in range(sweep.random)]
    for changes in _combinations(sweep):
        try:
            dimensions = entry.dimensions(sweep.preset, changes)
            found.append(entry.named(dimensions)[1])
        except UserError:
            raise
        except ValueError as error:
            illegal[" ".join(f"{name}={value}" for name, value in changes.items())] = str(error)
    for parameters in found:
        if holds(values_of(parameters)):
            legal[entry.named(parameters)[0]] = parameters
        else:
            excluded += 1
    if not legal:
        first = f"; the first: {next(iter(illegal.values()))}" if illegal else ""
        raise UserError(f"{sweep.name} must have a legal point: {len(illegal)} are illegal{first}")
    return Points(entry=entry, legal=legal, illegal=illegal, excluded=excluded)


def parse_sweep(text: str) -> dict[str, tuple[Any, ...]]:
    """Read ``name=values`` pairs, separated by spaces: ``lanes=4,8,16 stages=1..3``.

    Raises
    ------
    UserError
        If a word is not such a pair, or a parameter occurs twice.
    """
    grid: dict[str, tuple[Any, ...]] = {}
    for word in text.split():
        name, _equals, values = word.partition("=")
        if not (name and values):
            raise UserError(f"SWEEP must be pairs such as lanes=4,8,16, not {word!r}")
        if name in grid:
            raise UserError(f"SWEEP must vary each parameter once, not {name} twice")
        grid[name] = _values(values)
    return grid


def read_sweeps(file: Path) -> list[Sweep]:
    """Read the sweeps of a TOML file, one table per sweep.

    Raises
    ------
    UserError
        If the file does not exist, is not TOML, or contains a table that is no sweep.
    """
    try:
        tables = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(
            f"SWEEP must be pairs or a TOML file, not {str(file)!r}: {error}"
        ) from error
    if not tables:
        raise UserError(f"{file} must contain a table for each sweep, not be empty")
    return [_sweep(name, table) for name, table in tables.items()]


def _sweep(name: str, table: Any) -> Sweep:
    """Return the sweep that a table of a TOML file describes."""
    if not isinstance(table, dict) or "top" not in table:
        raise UserError(f"sweep {name} must be a table with a unit's name as top, not {table!r}")
    for key in table:
        if key not in _KEYS:
            raise UserError(unknown(f"key of sweep {name}", key, sorted(_KEYS)))
    plain = {
        key: table[key]
        for key in ("top", "preset", "random", "seed", "seeds", "where")
        if key in table
    }
    grid = table.get("grid", {})
    points = table.get("list", [])
    if not isinstance(grid, dict) or not isinstance(points, list):
        raise UserError(f"sweep {name} must have a table as grid and an array of tables as list")
    if "for" in table:
        plain["verbs"] = tuple(table["for"])
    return Sweep(
        name=name,
        grid={key: _values(value) for key, value in dotted(grid).items()},
        points=tuple(dotted(point) for point in points),
        **plain,
    )


def _values(given: Any) -> tuple[Any, ...]:
    """Return the values of a list, a range, or a text with commas."""
    if isinstance(given, list):
        return tuple(value for item in given for value in _values(item))
    if not isinstance(given, str):
        return (given,)
    return tuple(value for word in given.split(",") for value in _range(word))


def _range(word: str) -> tuple[Any, ...]:
    """Return the values of a range: ``1..3``, ``4..16:4`` in steps of 4, ``4..64*2`` by factors."""
    if not (match := _RANGE.fullmatch(word)):
        if not word:
            raise UserError("SWEEP must have a value between two commas")
        return (word,)
    first, last, step = int(match[1]), int(match[2]), int(match[4] or 1)
    values: list[int] = []
    value = first
    grows = step > 1 and first > 0 if match[3] == "*" else step > 0
    while grows and value <= last and len(values) <= MOST_VALUES:
        values.append(value)
        value = value * step if match[3] == "*" else value + step
    if not 0 < len(values) <= MOST_VALUES:
        raise UserError(f"a range must have 1 to {MOST_VALUES} values, not {word!r}")
    return tuple(values)


def _combinations(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the changes of every point of the grid and the list."""
    count = len(sweep.points or [()])
    for values in sweep.grid.values():
        count *= len(values)
    if count > MOST_VALUES:
        raise UserError(f"a sweep must have at most {MOST_VALUES} points, not {count}")
    if not (sweep.grid or sweep.points):
        return
    for base in sweep.points or ({},):
        for values in product(*sweep.grid.values()):
            yield dict(base) | dict(zip(sweep.grid, values, strict=True))
