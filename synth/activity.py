"""Switching activity from a simulation: transitions of each net in a clock cycle, from a VCD.

OpenSTA's older versions read no VCD, so the file is read here. Nets of the netlist are found in it
by their names: registers and ports keep theirs through synthesis, so the VCD may come from the RTL
as well as from the netlist.
"""

import re
from collections import Counter
from pathlib import Path

from hdl.errors import UserError
from synth.mapped_design import Netlist
from synth.timing import net_pins


def count_transitions(vcd: Path, top: str, clock: str = "clk") -> dict[str, float]:
    """Return the transitions of every bit in a clock cycle, by its path below the top module.

    Parameters
    ----------
    vcd : Path
        The waveform.
    top : str
        Scope that is the design.
    clock : str
        Its clock, which counts the cycles.

    Raises
    ------
    UserError
        If the file is no VCD, has no such scope, or its clock never moves.
    """
    if not vcd.is_file():
        raise UserError(f"VCD must be a file that exists, not '{vcd}'")
    names: dict[str, list[tuple[str, int, int]]] = {}
    scope: list[str] = []
    values: dict[str, str] = {}
    transitions: Counter[str] = Counter()
    with vcd.open(encoding="latin-1") as lines:
        for line in lines:
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                scope.append(words[2])
            elif words[0] == "$upscope":
                scope.pop()
            elif words[0] == "$var" and top in scope:
                inner = scope[scope.index(top) + 1 :]
                high, low = _range(words[5:-1], int(words[2]))
                path = ".".join([*inner, words[4].split("[")[0]])
                names.setdefault(words[3], []).append((path, high, low))
            elif words[0] == "$enddefinitions":
                break
        else:
            raise UserError(f"VCD must be a value change dump, not '{vcd}'")
        if not names:
            raise UserError(f"VCD must hold the signals of {top}; '{vcd}' does not")
        for line in lines:
            if line[0] in "01xzXZ":
                value, code = line[0], line[1:].strip()
            elif line[0] in "bB":
                value, code = line[1:].split()
            else:
                continue
            if code in names:
                _count(transitions, code, values.get(code), value, names[code][0])
                values[code] = value
    by_path = {
        f"{path}[{bit}]" if high != low else path: transitions[f"{code} {bit - low}"]
        for code, aliases in names.items()
        for path, high, low in aliases
        for bit in range(low, high + 1)
    }
    cycles = by_path.get(clock, 0) / 2
    if not cycles:
        raise UserError(f"VCD must hold a clock that moves; '{vcd}' has none called {clock}")
    return {path: count / cycles for path, count in by_path.items() if path != clock}


def read_activity(vcd: Path, netlist: Netlist) -> dict[str, float]:
    """Return the transitions in a cycle of the netlist's pins and ports that a VCD knows."""
    activity = count_transitions(vcd, netlist.top)
    return {pin: activity[net] for pin, net in net_pins(netlist).items() if net in activity}


def _range(words: list[str], width: int) -> tuple[int, int]:
    """Read the range of a declaration."""
    match = re.search(r"\[(\d+)(?::(\d+))?\]", " ".join(words))
    if match and width > 1:
        return int(match[1]), int(match[2] or match[1])
    return width - 1, 0


def _count(
    transitions: Counter[str], code: str, old: str | None, new: str, signal: tuple[str, int, int]
) -> None:
    """Count the bits that differ between two values."""
    if old is None:
        return
    width = signal[1] - signal[2] + 1
    before, after = _extend(old, width), _extend(new, width)
    for index, (a, b) in enumerate(zip(reversed(before), reversed(after), strict=True)):
        if a != b and a in "01" and b in "01":
            transitions[f"{code} {index}"] += 1


def _extend(value: str, width: int) -> str:
    """Extend a value to its width, as the standard says."""
    return value.rjust(width, value[0] if value[0] in "xzXZ" else "0")[-width:]
