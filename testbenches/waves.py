"""Waveforms: samples of a long run, and GTKWave views grouped by stream."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcd.gtkw import GTKWSave

from hdl.emit import Port


@dataclass(frozen=True)
class Samples:
    """Waveform samples of a long run: the first `cycles` of each `every` cycles, in a VCD file."""

    file: Path
    cycles: int = 20
    every: int = 20_000


def write_view(directory: Path, top: str, ports: Sequence[Port]) -> list[Path]:
    """Write ``<top>.gtkw`` next to the waveform of the simulator.

    Parameters
    ----------
    directory : Path
        Directory in which the simulator ran.
    top : str
        Name of the top module.
    ports : Sequence[Port]
        Ports of the top module: clock and reset, then one group per stream, then the rest. Below
        them, each inner module has one closed group.

    Returns
    -------
    list[Path]
        The waveform and the view; empty if there is no waveform.
    """
    found = sorted([*directory.glob("*.vcd"), *directory.glob("*.fst")])
    if not found:
        return []
    dump = found[0]
    view = directory / f"{top}.gtkw"
    names = _names(dump) if dump.suffix == ".vcd" else {}
    scope = next((path for path in names if path.split(".")[-1] == top), top)
    with view.open("w") as file:
        save = GTKWSave(file)
        save.dumpfile(dump.name, abspath=False)
        save.treeopen(f"{scope}.")
        groups: dict[str, list[Port]] = {}
        for port in ports:
            groups.setdefault(port.path[0], []).append(port)
        for stem, members in groups.items():
            if len(members) == 1:
                _trace(save, scope, members[0].name, members[0].width)
                continue
            with save.group(stem):
                for port in members:
                    _trace(save, scope, port.name, port.width)
        for path in sorted(names, key=_natural):
            if not path.startswith(f"{scope}."):
                continue
            with save.group(path.removeprefix(f"{scope}."), closed=True):
                for name, width in names[path]:
                    _trace(save, path, name, width)
    return [dump, view]


def _trace(save: GTKWSave, scope: str, name: str, width: int) -> None:
    bus = f"[{width - 1}:0]" if width > 1 else ""
    save.trace(f"{scope}.{name}{bus}", datafmt="hex" if width > 1 else "bin")


def _natural(path: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def _names(dump: Path) -> dict[str, list[tuple[str, int]]]:
    """Read the scopes and variables that a VCD file declares, without those named by Yosys."""
    scopes: dict[str, list[tuple[str, int]]] = {}
    path: list[str] = []
    with dump.open() as file:
        for line in file:
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                path.append(words[2])
                scopes[".".join(path)] = []
            elif words[0] == "$upscope":
                path.pop()
            elif words[0] == "$var":
                if not words[4].startswith(("$", "_")):
                    scopes[".".join(path)].append((words[4], int(words[2])))
            elif words[0] == "$enddefinitions":
                break
    return scopes
