"""Waveforms of nets in a simulation, cycle by cycle, read from a value change dump.

A waveform is an integer whose bit t is the net's value before clock edge t. An operator on integers
therefore computes the logic between two registers for all cycles at once.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hdl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Waveforms:
    """The nets of a design over some cycles, which may have gaps between them.

    Parameters
    ----------
    cycles : int
        Number of cycles.
    changes : int
        Bit t is 1 if cycle t + 1 follows cycle t without a gap.
    nets : dict[str, int]
        Waveforms, by the path below the top module; a bit of a vector is ``path[bit]``.
    """

    cycles: int
    changes: int
    nets: dict[str, int] = field(repr=False)

    @property
    def every(self) -> int:
        """The waveform of a net that is always 1."""
        return (1 << self.cycles) - 1

    def transitions(self, waveform: int) -> float:
        """Return the transitions of a net per cycle."""
        changed = (waveform ^ waveform >> 1) & self.changes
        return changed.bit_count() / max(self.changes.bit_count(), 1)

    def ones(self, waveform: int) -> float:
        """Return the share of cycles in which a net is 1."""
        return waveform.bit_count() / self.cycles


@dataclass(kw_only=True)
class _Variable:
    """A variable of the dump: its names, and its values, each from one cycle on."""

    width: int
    names: list[tuple[str, int, int]] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def take(self, cycle: int, value: str) -> None:
        """Record a value from a cycle on; the last value before the cycle's edge is valid."""
        if self.since and self.since[-1] == cycle:
            self.values[-1] = value
        else:
            self.since.append(cycle)
            self.values.append(value)

    def waveforms(self, cycles: int) -> list[int]:
        """Return the waveform of every bit, the lowest first; x and z count as 0."""
        seen = sum(cycle < cycles for cycle in self.since)
        if not seen:
            return [0] * self.width
        text = "".join(_extend(value, self.width) for value in self.values[:seen])
        bits = np.frombuffer(text.encode("latin-1"), np.uint8).reshape(seen, self.width) == ord("1")
        lengths = np.diff([*self.since[:seen], cycles])
        held = np.repeat(bits, lengths, axis=0)
        before = np.zeros((self.since[0], self.width), bool)
        packed = np.packbits(np.concatenate([before, held]), axis=0, bitorder="little")
        columns = np.ascontiguousarray(packed.T[::-1])
        return [int.from_bytes(column.tobytes(), "little") for column in columns]


def read_waveforms(vcd: Path, top: str, clock: str = "clk") -> Waveforms:
    """Read the waveforms of every net below a top module.

    Parameters
    ----------
    vcd : Path
        The value change dump, of RTL or of a netlist.
    top : str
        Scope of the design.
    clock : str
        Clock, whose rising edges delimit the cycles. Edges with more than the minimum distance have
        a gap between them, over which no transition counts.

    Raises
    ------
    UserError
        If the file is no VCD, has no such scope, or its clock never changes.
    """
    if not vcd.is_file():
        raise UserError(f"VCD must be a file that exists, not '{vcd}'")
    with vcd.open(encoding="latin-1") as lines:
        variables = _variables(lines, vcd, top)
        ticking = next(
            (code for code, v in variables.items() if any(n[0] == clock for n in v.names)), None
        )
        edges: list[int] = []
        for time, changes in _moments(lines):
            # Process the edge first: registers sample simultaneous changes at the next edge.
            if ticking is not None and changes.get(ticking) == "1":
                edges.append(time)
            for code, value in changes.items():
                if code in variables:
                    variables[code].take(len(edges), value)
    if not edges:
        raise UserError(f"VCD must contain a running clock {clock}, not '{vcd}'")
    nets: dict[str, int] = {}
    for code, variable in variables.items():
        if code == ticking:
            continue
        waveforms = variable.waveforms(len(edges))
        for path, high, low in variable.names:
            for bit in range(low, high + 1):
                nets[f"{path}[{bit}]" if high != low else path] = waveforms[bit - low]
    apart = np.diff(edges)
    follows = apart == apart.min(initial=np.iinfo(np.int64).max)
    packed = np.packbits(follows, bitorder="little").tobytes()
    return Waveforms(cycles=len(edges), changes=int.from_bytes(packed, "little"), nets=nets)


def _variables(lines: Iterable[str], vcd: Path, top: str) -> dict[str, _Variable]:
    """Read the declarations: the variables below the top module, by their codes."""
    scope: list[str] = []
    variables: dict[str, _Variable] = {}
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "$scope":
            scope.append(words[2])
        elif words[0] == "$upscope":
            scope.pop()
        elif words[0] == "$var" and top in scope:
            width = int(words[2])
            high, low = _range(words[5:-1], width)
            path = ".".join([*scope[scope.index(top) + 1 :], words[4].split("[")[0]])
            variable = variables.setdefault(words[3], _Variable(width=width))
            variable.names.append((path, high, low))
        elif words[0] == "$enddefinitions":
            break
    else:
        raise UserError(f"VCD must be a value change dump, not '{vcd}'")
    if not variables:
        raise UserError(f"VCD must contain the signals of {top}, not '{vcd}'")
    return variables


def _moments(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each time of a dump with the changes at that time."""
    time, changes = 0, dict[str, str]()
    for line in lines:
        if line[0] in "01xzXZ":
            changes[line[1:].strip()] = line[0]
        elif line[0] in "bB":
            value, code = line[1:].split()
            changes[code] = value
        elif line[0] == "#":
            yield time, changes
            time, changes = int(line[1:]), {}
    yield time, changes


def _range(words: list[str], width: int) -> tuple[int, int]:
    """Read the range of a declaration."""
    match = re.search(r"\[(\d+)(?::(\d+))?\]", " ".join(words))
    if match and width > 1:
        return int(match[1]), int(match[2] or match[1])
    return width - 1, 0


def _extend(value: str, width: int) -> str:
    """Extend a value to its width by the rules of the standard."""
    return value.rjust(width, value[0] if value[0] in "xzXZ" else "0")[-width:]
