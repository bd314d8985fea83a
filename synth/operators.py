"""The verb ``operators``: what arithmetic costs, and where that stands beside other people's work.

Every circuit is mapped flat by Yosys's own script without sizing (recipe ``plain``), as the
circuits of other people were, and by the recipes ``area`` and ``speed``.
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
"""By the unit as `synth.measure` takes it: its `synth.measure.Measurement` by every recipe."""


def reference() -> dict[str, Any]:
    """Return other people's circuits (``peer``), ours (``ours``) and the ``library``'s name."""
    return tomllib.loads((REFERENCE / "peers.toml").read_text())


def operators_of_pages() -> dict[str, list[str]]:
    """Return the operators whose cost each page below ``docs/`` shows."""
    return tomllib.loads((REFERENCE / "operators.toml").read_text())["pages"]


def measure_operators(
    library: Library, file: Path, *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure everything that a page shows, write the JSON file and return what it holds.

    Raises
    ------
    UserError
        If the library is not the one in which the others were measured.
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
    """One circuit beside others that do the same work.

    Parameters
    ----------
    name : str
        What it is called.
    ours : bool
        Whose it is.
    points : tuple[tuple[str, float, float], ...]
        Recipe, area in um2 and delay in ps.
    """

    name: str
    ours: bool
    points: tuple[tuple[str, float, float], ...]


def beside(costs: Costs) -> dict[str, list[Circuit]]:
    """Return all circuits by what they do, ours first.

    What none of ours does is left out.
    """
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
