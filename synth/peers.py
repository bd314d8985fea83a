"""The verb ``peers``: operators and units beside other people's circuits that do the same work.

Everything is mapped in the same way: Yosys's own script, flattened, without sizing (recipe
``plain``). Ours are shown by the recipes ``area`` and ``speed`` too.
"""

import json
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from synth.asic import tool_versions
from synth.liberty import Library
from synth.measure import build_unit, measure

REFERENCE = Path(__file__).with_name("reference") / "peers.toml"


def reference() -> dict[str, Any]:
    """Return the other circuits (``peer``), ours (``ours``) and the ``library``'s name."""
    return tomllib.loads(REFERENCE.read_text())


def measure_peers(
    library: Library, file: Path, *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure each of ours, write the JSON file and return what it holds.

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
    circuits = []
    for number, ours in enumerate(known["ours"], 1):
        progress(f"{number} of {len(known['ours'])}: {ours['name']}")
        with tempfile.TemporaryDirectory() as scratch:
            measured = measure(build_unit(ours["unit"]), library, directory=Path(scratch))
        circuits.append(ours | {"recipes": [asdict(item) for item in measured]})
    results = {
        "liberty": library.name,
        "corner": library.corner,
        "tools": tool_versions(),
        "circuits": circuits,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(json.dumps(results, indent=1) + "\n")
    new.rename(file)
    return results


def beside(circuits: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float, bool]]]:
    """Return all circuits by what they do: name, area in um2, delay in ps, and whether it is ours.

    Parameters
    ----------
    circuits : list
        As `measure_peers` returns them; what none of them does is left out.
    """
    groups: dict[str, list[tuple[str, float, float, bool]]] = {}
    for circuit in circuits:
        points = groups.setdefault(circuit["like"], [])
        for recipe in circuit["recipes"]:
            name = f"{circuit['name']}, {recipe['recipe']}"
            points.append((name, recipe["area_um2"], recipe["mapper_delay_ps"], True))
    for peer in reference()["peer"]:
        if peer["like"] in groups:
            groups[peer["like"]].append((peer["name"], peer["area_um2"], peer["delay_ps"], False))
    return groups
