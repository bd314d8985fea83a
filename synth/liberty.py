"""Cell libraries: names, areas, pins, functions and flip-flops of the cells in liberty files.

The flow uses this information. Yosys, ABC and OpenSTA read the tables of delays and power.
"""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from hdl.errors import UserError
from synth.debian import osu018
from synth.functions import logic_function, names
from synth.liberty_files import collect_liberty, liberty_paths, library_head, without_comments

GENERIC = Path(__file__).with_name("generic.lib")
ENABLE_LIMIT = 1.6
"""Maximum area of an enable flip-flop, in areas of a plain one, for use by the flow. If it is
larger, a plain flip-flop and a multiplexer are smaller."""

_TOKEN = re.compile(
    r"""(?P<group>[A-Za-z_]\w*)\s*\(\s*(?P<argument>[^(){};]*?)\s*\)\s*\{"""
    r"""|(?P<close>\})"""
    r"""|(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<value>"[^"]*"|[^;{}\n]+)""",
)


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One pin of a cell: name, direction, logic function (outputs), capacitance, clock or not."""

    name: str
    direction: str
    function: str = ""
    capacitance: float = 0.0
    clock: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: area in the library's unit, pins, and kind of state.

    `state_names` are the names of the state and its inverse in the outputs' functions.
    """

    name: str
    area: float
    pins: tuple[Pin, ...]
    state: str = ""
    next_state: str = ""
    state_names: tuple[str, ...] = ()
    dont_use: bool = False

    @property
    def inputs(self) -> list[Pin]:
        """The input pins."""
        return [pin for pin in self.pins if pin.direction == "input"]

    @property
    def outputs(self) -> list[Pin]:
        """The output pins."""
        return [pin for pin in self.pins if pin.direction == "output"]

    @property
    def is_gate(self) -> bool:
        """Whether the outputs are functions of the inputs: no state, no constant."""
        return not self.state and bool(self.inputs)

    @cached_property
    def truth_table(self) -> int | None:
        """Value of the only output, bit i for input value i; None for all other cells."""
        if self.state or len(self.outputs) != 1:
            return None
        return _truth(self.outputs[0].function, [pin.name for pin in self.inputs])


@dataclass(frozen=True, kw_only=True)
class Library:
    """A cell library: a liberty file in the build directory, and its cells.

    Parameters
    ----------
    path : Path
        The file, not compressed, at a path without spaces or quotes.
    name : str
        Name of the library group, fit for a folder's name.
    corner : str
        Process, voltage and temperature as far as the file states them.
    origin : str
        Source of the file, as a phrase for a report.
    digest : str
        First twelve digits of the SHA-256 of the text.
    capacitance_unit_ff : float
        The library's unit of capacitance in femtofarad.
    timed : bool
        Whether the file has delays; the generic estimate has none.
    cells : dict[str, Cell]
        Every cell by name.
    """

    path: Path
    name: str
    corner: str
    origin: str
    digest: str
    capacitance_unit_ff: float
    timed: bool
    cells: dict[str, Cell] = field(repr=False)

    @property
    def nand2_area(self) -> float:
        """Area of the smallest two-input NAND, the unit of a gate equivalent."""
        cell = self._smallest(2, "!(A B)")
        if not cell:
            raise UserError(f"the library {self.name} must contain a two-input NAND cell")
        return cell.area

    @property
    def buffer(self) -> Cell | None:
        """The smallest buffer."""
        return self._smallest(1, "A")

    @property
    def inverter(self) -> Cell | None:
        """The smallest inverter."""
        return self._smallest(1, "!A")

    @property
    def ties(self) -> dict[int, tuple[str, str]]:
        """Cell and pin for each constant, if the library has cells for both."""
        found = {}
        for cell in sorted(self.cells.values(), key=lambda cell: -cell.area):
            for pin in cell.outputs:
                if not cell.inputs and pin.function in ("0", "1") and "macro" not in cell.name:
                    found[int(pin.function)] = (cell.name, pin.name)
        return found if len(found) == 2 else {}

    @property
    def dont_use(self) -> list[str]:
        """Cells that the flow does not use.

        These are the cells that the library marks, cells for power domains and probes, and
        flip-flops with an enable where a plain one and a multiplexer are smaller.
        """
        names = [cell.name for cell in self.cells.values() if cell.dont_use]
        names += [name for name in self.cells if re.search(r"lpflow|probe", name)]
        flops = [cell for cell in self.cells.values() if cell.state == "ff"]
        plain = min((cell.area for cell in flops), default=0.0)
        names += [
            cell.name for cell in flops if _has_enable(cell) and cell.area > ENABLE_LIMIT * plain
        ]
        return sorted(set(names))

    def _smallest(self, inputs: int, function: str) -> Cell | None:
        """Return the smallest usable cell that computes a function of A, B, ..."""
        cells = [
            cell
            for cell in self.cells.values()
            if not cell.dont_use and len(cell.inputs) == inputs and _computes(cell, function)
        ]
        return min(cells, key=lambda cell: (cell.area, cell.name), default=None)


def find_library(given: Path | str | None = None) -> Library:
    """Return the cell library to use.

    Without a path: Debian's OSU018 if it is installed, else the same package fetched without root,
    else a generic estimate in NAND2 equivalents, which has areas and no delays.

    Parameters
    ----------
    given : Path or str, optional
        A liberty file, ``.lib`` or ``.lib.gz``; in a text a colon separates several.

    Raises
    ------
    UserError
        If a file does not exist, is not liberty, or contradicts another.
    """
    if given:
        files = liberty_paths(given)
        origin = f"given as LIBERTY={':'.join(file.name for file in files)}"
        return read_library(*files, origin=origin)
    if cells := osu018():
        return read_library(cells, origin="Debian package qflow-tech-osu018")
    return read_library(GENERIC, origin="generic estimate in NAND2 equivalents, no cell library")


def read_library(*files: Path, origin: str) -> Library:
    """Read the liberty files of one library; `Library.path` is a copy in the build directory.

    Raises
    ------
    UserError
        If a file does not exist, is not liberty, or contradicts another.
    """
    copy, text = collect_liberty(files)
    return _parse(copy, text, ":".join(map(str, files)), origin, GENERIC not in files)


@lru_cache(maxsize=8)
def _parse(path: Path, text: str, given: str, origin: str, timed: bool) -> Library:
    """Read those groups of a liberty text that the flow uses; messages name the file as `given`."""
    digest = hashlib.sha256(text.encode("latin-1")).hexdigest()[:12]
    text = without_comments(text)
    head = library_head(text, Path(given))
    library: dict[str, str] = {}
    cells: dict[str, Cell] = {}
    stack: list[tuple[str, str, dict[str, str]]] = [("library", head[1], library)]
    cell: dict[str, str] = {}
    pins: list[Pin] = []
    for token in _TOKEN.finditer(text, head.end()):
        if token["group"]:
            attributes: dict[str, str] = {}
            stack.append((token["group"], token["argument"].strip('" '), attributes))
            if token["group"] == "cell":
                cell, pins = attributes, []
            elif len(stack) == 3 and token["group"] in ("ff", "latch", "statetable"):
                cell["state"] = token["group"]
                cell["state_names"] = stack[-1][1]
        elif token["name"]:
            if stack:
                stack[-1][2][token["name"]] = token["value"].strip('" \t')
        elif stack:
            group, argument, attributes = stack.pop()
            if group == "pin" and stack and stack[-1][0] == "cell":
                pins.append(_pin(argument, attributes))
            elif group == "ff":
                cell["next_state"] = attributes.get("next_state", "")
            elif group == "cell":
                if argument in cells:
                    raise UserError(f"LIBERTY must define cell {argument} once, not '{given}'")
                cells[argument] = _cell(argument, cell, pins)
            elif group == "operating_conditions" and "voltage" in attributes:
                library.setdefault("conditions", argument)
    if stack:
        raise UserError(f"LIBERTY must be a whole file, not '{given}': a group is not closed")
    if not cells:
        raise UserError(f"LIBERTY must be a liberty file with cells, not '{given}'")
    unit = re.search(r"capacitive_load_unit\s*\(\s*([\d.]+)\s*,\s*\"?(\w+)\"?\s*\)", text)
    scale = {"ff": 1.0, "pf": 1000.0}.get(unit[2].lower(), 1.0) if unit else 1000.0
    return Library(
        path=path,
        # The name must be legal for a folder of results.
        name=re.sub(r"[^\w.+-]", "_", head[1]).lstrip(".") or "unnamed",
        corner=_corner(library),
        origin=origin,
        digest=digest,
        capacitance_unit_ff=(float(unit[1]) if unit else 1.0) * scale,
        timed=timed,
        cells=cells,
    )


def _pin(name: str, attributes: dict[str, str]) -> Pin:
    """Create a pin from its attributes."""
    return Pin(
        name=name,
        direction=attributes.get("direction", ""),
        function=attributes.get("function", ""),
        capacitance=float(attributes.get("capacitance", 0) or 0),
        clock=attributes.get("clock", "") == "true",
    )


def _cell(name: str, attributes: dict[str, str], pins: list[Pin]) -> Cell:
    """Create a cell from its attributes."""
    return Cell(
        name=name,
        area=float(attributes.get("area", 0) or 0),
        pins=tuple(pins),
        state=attributes.get("state", ""),
        next_state=attributes.get("next_state", ""),
        state_names=tuple(re.findall(r"\w+", attributes.get("state_names", ""))),
        dont_use=attributes.get("dont_use", "") == "true",
    )


def _corner(library: dict[str, str]) -> str:
    """Return the corner that the file states."""
    words = [library.get("default_operating_conditions") or library.get("conditions", "")]
    if "nom_voltage" in library:
        words.append(f"{float(library['nom_voltage']):g} V")
    if "nom_temperature" in library:
        words.append(f"{float(library['nom_temperature']):g} C")
    return ", ".join(word for word in words if word) or "not stated"


def _computes(cell: Cell, function: str) -> bool:
    """Return whether a cell without state has one output and computes a function of A, B, ..."""
    wanted = _truth(function, list("AB"[: len(cell.inputs)]))
    return wanted is not None and wanted == cell.truth_table


def _has_enable(cell: Cell) -> bool:
    """Return whether a flip-flop's next state depends on its own output."""
    return bool(set(cell.state_names) & set(names(cell.next_state)))


def _truth(text: str, inputs: list[str]) -> int | None:
    """Return the truth table of a liberty function, bit i for input value i."""
    rows = 1 << len(inputs)
    table = {
        name: sum(1 << row for row in range(rows) if row >> index & 1)
        for index, name in enumerate(inputs)
    }
    try:
        return logic_function(text)(table, (1 << rows) - 1)
    except (ValueError, KeyError):
        return None
