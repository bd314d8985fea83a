"""Lists of memory macros, read from TOML.

A list describes each macro of a technology: words, bits, pins, and the few facts on which an exact
wrapper depends. `docs/exports.md` has the table of all keys.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdl.errors import UserError, unknown
from hdl.verilog_names import KEYWORDS

LISTS = Path(__file__).parent
"""Folder of the lists that the package contains."""

KINDS = (("rw",), ("r", "w"), ("r", "rw"), ("rw", "rw"))
"""Legal kinds of a macro's ports, sorted."""

COLLISIONS = ("undefined", "old", "new")
PINS = ("clock", "enable", "write", "address", "data_in", "data_out", "mask")
LARGEST = 1 << 20
"""Maximum of each dimension."""

_REQUIRED = {
    "r": {"clock", "address", "data_out"},
    "w": {"clock", "address", "data_in"},
    "rw": {"clock", "write", "address", "data_in", "data_out"},
}
_OPTIONAL = {"r": {"enable"}, "w": {"enable", "write", "mask"}, "rw": {"enable", "mask"}}
_LIMITS = ("minimum_bits", "maximum_ratio", "overhead_bits")
_MACRO_KEYS = (
    "name",
    "depth",
    "width",
    "area_um2",
    "mask_granularity",
    "collision",
    "holds_output",
    "ports",
)


@dataclass(frozen=True, kw_only=True)
class MacroPort:
    """A port of a macro: its kind, and the names of its pins; None for a pin that it lacks.

    Parameters
    ----------
    kind : str
        ``r`` reads, ``w`` writes, ``rw`` reads or writes in one cycle.
    clock : str
        The clock; the port acts at its rising edge.
    enable : str, optional
        Enables the port; without it the port is always enabled.
    write : str, optional
        Selects a write. A ``w`` port without it writes in each enabled cycle.
    address, data_in, data_out : str
        Address, written word, read word.
    mask : str, optional
        The parts of the word that a write changes.
    active_low : frozenset[str]
        Those of ``enable``, ``write`` and ``mask`` that are active at 0.
    """

    kind: str
    clock: str
    address: str
    enable: str | None = None
    write: str | None = None
    data_in: str | None = None
    data_out: str | None = None
    mask: str | None = None
    active_low: frozenset[str] = frozenset()

    @property
    def pins(self) -> dict[str, str]:
        """The port's pins, by role, in the order of `PINS`."""
        return {role: pin for role in PINS if (pin := getattr(self, role)) is not None}


@dataclass(frozen=True, kw_only=True)
class Macro:
    """A memory macro.

    Parameters
    ----------
    name : str
        Its module.
    depth, width : int
        Number of words, and bits of a word.
    ports : tuple[MacroPort, ...]
        Its ports, of one of the `KINDS`.
    area_um2 : float, optional
        Area in square micrometres.
    mask_granularity : int, optional
        Number of bits that one bit of the mask controls; None without a mask.
    collision : str
        The word that a port reads at the address that another port writes in the same cycle:
        ``old`` before the write, ``new`` after it, or ``undefined``.
    holds_output : bool
        Whether the output of a port keeps the last read word until the port reads again, also while
        the port writes.
    """

    name: str
    depth: int
    width: int
    ports: tuple[MacroPort, ...]
    area_um2: float | None = None
    mask_granularity: int | None = None
    collision: str = "undefined"
    holds_output: bool = False

    @property
    def bits(self) -> int:
        """Capacity in bits."""
        return self.depth * self.width

    @property
    def address_bits(self) -> int:
        """Width of an address in bits."""
        return max(1, (self.depth - 1).bit_length())

    @property
    def read_port(self) -> MacroPort:
        """The port on which a wrapper reads: one that only reads, else the last."""
        return next((port for port in self.ports if port.kind == "r"), self.ports[-1])

    @property
    def write_port(self) -> MacroPort:
        """The port on which a wrapper writes: not `read_port`, unless there is one port."""
        others = [port for port in self.ports if port is not self.read_port]
        return others[0] if others else self.ports[0]

    @property
    def is_single_port(self) -> bool:
        """Whether one port must either read or write."""
        return len(self.ports) == 1


@dataclass(frozen=True, kw_only=True)
class MacroList:
    """The macros of a technology.

    Parameters
    ----------
    name : str
        Name of the file, without its ending.
    macros : tuple[Macro, ...]
        The macros.
    minimum_bits : int
        A memory with fewer bits is not built from macros.
    maximum_ratio : int
        A memory is not built from macros if they have more bits than this number per memory bit; 0
        for no limit.
    double_clock : bool
        Whether macros with one port get twice the clock.
    overhead_bits : int
        Cost of a macro in addition to its capacity, in bits. A larger number selects fewer, larger
        macros.
    """

    name: str
    macros: tuple[Macro, ...]
    double_clock: bool = False
    minimum_bits: int = 0
    maximum_ratio: int = 0
    overhead_bits: int = 0


def find_macro_list(name: str) -> MacroList:
    """Read the list of a path, or one that the package contains.

    Parameters
    ----------
    name : str
        A path, or the name of a file in `LISTS`.

    Raises
    ------
    UserError
        If there is no such file, or the list is not legal.
    """
    path = Path(name).expanduser()
    if not path.is_file() and path.parent == Path():
        path = LISTS / path.name
    if not name or not path.is_file():
        contained = ", ".join(sorted(file.name for file in LISTS.glob("*.toml")))
        raise UserError(f"MACROS must name a TOML file or one of {contained}, not {name!r}")
    return read_macro_list(path)


def read_macro_list(path: Path) -> MacroList:
    """Read a list of macros.

    Raises
    ------
    UserError
        If the file is no TOML, contains an unknown key or an illegal value, or two macros have one
        name.
    """
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"MACROS must name a TOML file: {path.name}: {error}") from error
    where = path.name
    _check_keys(values, (*_LIMITS, "double_clock", "defaults", "macros"), where)
    double = _flag(values.get("double_clock", False), "double_clock", where)
    limits = {key: _integer(values.get(key, 0), key, where, least=0) for key in _LIMITS}
    defaults = _table(values.get("defaults", {}), f"defaults in {where}")
    _check_keys(defaults, _MACRO_KEYS[1:], f"defaults in {where}")
    entries = values.get("macros")
    if not isinstance(entries, list) or not entries:
        raise UserError(f"macros in {where} must be tables [[macros]], at least one")
    macros = [_macro(defaults | _table(entry, f"macros in {where}"), where) for entry in entries]
    for name, number in Counter(macro.name for macro in macros).items():
        if number > 1:
            raise UserError(f"macros in {where} must have distinct names, not {number} of {name}")
    return MacroList(name=path.stem, macros=tuple(macros), double_clock=double, **limits)


def _macro(values: Mapping[str, Any], where: str) -> Macro:
    """Return the macro that a table describes."""
    name = _word(values.get("name"), f"name of a macro in {where}")
    where = f"{name} in {where}"
    _check_keys(values, _MACRO_KEYS, where)
    depth = _integer(values.get("depth"), "depth", where, least=2)
    width = _integer(values.get("width"), "width", where, least=1)
    area = values.get("area_um2")
    if area is not None:
        area = _positive(area, "area_um2", where)
    tables = values.get("ports")
    if not isinstance(tables, list):
        raise UserError(f"ports of {where} must be tables, not {tables!r}")
    ports = tuple(_port(_table(table, f"ports of {where}"), where) for table in tables)
    kinds = tuple(sorted(port.kind for port in ports))
    if kinds not in KINDS:
        legal = ", ".join(" and ".join(one) for one in KINDS)
        raise UserError(f"ports of {where} must be {legal}, not {' and '.join(kinds) or 'none'}")
    # Ports may share a clock pin and no other pin.
    pins = {
        (role, pin) if role == "clock" else (index, role, pin)
        for index, port in enumerate(ports)
        for role, pin in port.pins.items()
    }
    for pin, number in Counter(key[-1] for key in pins).items():
        if number > 1:
            raise UserError(f"pins of {where} must have distinct names, not {number} of {pin}")
    granularity = None
    if any(port.mask for port in ports) or "mask_granularity" in values:
        granularity = _integer(values.get("mask_granularity"), "mask_granularity", where, least=1)
        if width % granularity:
            raise UserError(
                f"mask_granularity of {where} must divide the width {width}, not {granularity}"
            )
        if not all(port.mask for port in ports if port.kind != "r"):
            raise UserError(f"each writing port of {where} must have a pin mask")
    collision = values.get("collision", "undefined")
    if collision not in COLLISIONS:
        raise UserError(unknown(f"collision of {where}", str(collision), COLLISIONS))
    holds = _flag(values.get("holds_output", False), "holds_output", where)
    if holds and not all(port.enable for port in ports if port.kind == "r"):
        raise UserError(f"holds_output of {where} requires a pin enable of the reading port")
    if holds and len(ports) == 1 and not ports[0].enable:
        raise UserError(f"holds_output of {where} requires a pin enable")
    return Macro(
        name=name,
        depth=depth,
        width=width,
        ports=ports,
        area_um2=area,
        mask_granularity=granularity,
        collision=collision,
        holds_output=holds,
    )


def _port(values: Mapping[str, Any], where: str) -> MacroPort:
    """Return the port that a table describes."""
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _REQUIRED:
        raise UserError(unknown(f"kind of a port of {where}", str(kind), _REQUIRED))
    where = f"port {kind} of {where}"
    roles = _REQUIRED[kind] | _OPTIONAL[kind]
    _check_keys(values, ("kind", *(role for role in PINS if role in roles), "active_low"), where)
    missing = [role for role in PINS if role in _REQUIRED[kind] - set(values)]
    if kind == "w" and not {"enable", "write"} & set(values):
        missing.append("enable or write")
    if missing:
        raise UserError(f"{where} must have the pins {', '.join(missing)}")
    pins = {role: _word(values[role], f"{role} of {where}") for role in PINS if role in values}
    low = values.get("active_low", [])
    legal = [role for role in ("enable", "write", "mask") if role in pins]
    if not isinstance(low, list) or any(role not in legal for role in low):
        raise UserError(f"active_low of {where} must list some of {', '.join(legal)}, not {low!r}")
    return MacroPort(kind=kind, active_low=frozenset(low), **pins)


def _check_keys(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise UserError(unknown(f"a key of {where}", key, known))


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} must be a table, not {value!r}")
    return value


def _integer(value: Any, key: str, where: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise UserError(f"{key} of {where} must be {least} to {LARGEST}, not {value!r}")
    return value


def _flag(value: Any, key: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{key} of {where} must be true or false, not {value!r}")
    return value


def _positive(value: Any, key: str, where: str) -> float:
    legal = isinstance(value, int | float) and not isinstance(value, bool)
    if not legal or not 0 < value < math.inf:
        raise UserError(f"{key} of {where} must be a positive number, not {value!r}")
    return float(value)


def _word(value: Any, where: str) -> str:
    legal = isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII)
    if not legal or value in KEYWORDS:
        raise UserError(f"{where} must be a Verilog identifier and no keyword, not {value!r}")
    return value
