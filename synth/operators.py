"""The verb ``operators``: costs of arithmetic, compared with the circuits of other projects.

Every circuit is mapped flat by Yosys's own script without sizing (recipe ``plain``), like the
circuits of other projects, and by the recipes ``area`` and ``speed``.
"""

import json
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from hdl.paths import replace_text
from synth.asic import tool_versions
from synth.liberty import Library
from synth.measure import build_unit, measure

REFERENCE = Path(__file__).with_name("reference")

Costs = dict[str, list[dict[str, Any]]]
"""For each unit, as text for `synth.measure`: one `synth.measure.Measurement` per recipe."""


def reference() -> dict[str, Any]:
    """Return the circuits of other projects (``peer``), ours (``ours``) and the ``library``."""
    return tomllib.loads((REFERENCE / "peers.toml").read_text())


def operators_of_pages() -> dict[str, list[str]]:
    """Return the operators whose cost each page below ``docs/`` shows."""
    return tomllib.loads((REFERENCE / "operators.toml").read_text())["pages"]


def measure_operators(
    library: Library, file: Path, *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure every operator that a page contains, write the JSON file and return its contents.

    Raises
    ------
    UserError
        If the library is not that of the other projects' figures.
    """
    known = reference()
    if library.name != known["library"]:
        raise UserError(
            f"LIBERTY must be {known['library']}, in which the other circuits were measured, "
            f"not {library.name}"
        )
    shown = [unit for units in operators_of_pages().values() for unit in units]
    texts = dict.fromkeys([*shown, *(ours["unit"] for ours in known["ours"])])
    units = {text: build_unit(text) for text in texts}
    costs: Costs = {}
    for number, (text, unit) in enumerate(units.items(), 1):
        progress(f"{number} of {len(units)}: {short_name(text)}")
        with tempfile.TemporaryDirectory() as scratch:
            measured = measure(unit, library, directory=Path(scratch))
        costs[text] = [asdict(item) for item in measured]
    results = {
        "liberty": library.name,
        "corner": library.corner,
        "tools": tool_versions(),
        "costs": costs,
    }
    replace_text(file, json.dumps(results, indent=1) + "\n")
    return results


def short_name(unit: str) -> str:
    """Return a unit's text without its module."""
    return unit.partition(":")[2]


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """One circuit of a comparison.

    Parameters
    ----------
    name : str
        Name in tables.
    ours : bool
        Whether the circuit is part of this project.
    points : tuple[tuple[str, float, float], ...]
        Recipe, area in um2 and delay in ps.
    """

    name: str
    ours: bool
    points: tuple[tuple[str, float, float], ...]


def compared_circuits(costs: Costs) -> dict[str, list[Circuit]]:
    """Return all circuits by function, ours first, without functions that none of ours has."""
    known = reference()
    groups: dict[str, list[Circuit]] = {}
    for ours in known["ours"]:
        points = tuple(
            (recipe["recipe"], recipe["area_um2"], recipe["mapper_delay_ps"])
            for recipe in costs.get(ours["unit"], [])
        )
        if points:
            circuit = Circuit(name=ours["name"], ours=True, points=points)
            groups.setdefault(ours["like"], []).append(circuit)
    for peer in known["peer"]:
        if peer["like"] in groups:
            point = "plain", peer["area_um2"], peer["delay_ps"]
            circuit = Circuit(name=peer["name"], ours=False, points=(point,))
            groups[peer["like"]].append(circuit)
    return groups
