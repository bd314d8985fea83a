"""What the report says of each paper: one file a paper below ``synth/reference/papers/``.

A paper's file has its title and ``[[headline]]``, what the paper says of itself; where it is built
also ``[[cycles]]``, measured cycles beside a formula; ``[[part]]``, what its area is divided into;
and ``[diagram]``, the boxes of its figure. A new paper is a new file.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from synth.diagram import Diagram

PAPERS = Path(__file__).with_name("reference") / "papers"


@dataclass(frozen=True, kw_only=True)
class Headline:
    """One claim of the paper, and what is measured here.

    Parameters
    ----------
    claim, paper : str
        What is claimed, in our words, and the paper's figure.
    ratio : tuple[str, str], optional
        Two units; ours is the ratio of their areas.
    quantity : tuple[str, str], optional
        A unit, and a member of its fastest netlist; `form` formats it.
    ours : str
        Otherwise: what a page below ``docs/`` says was measured.
    page, command : str
        That page, and what gives the figure.
    quotes : Sequence[str]
        What stands on that page; `ours` itself unless it is put in other words.
    """

    claim: str
    paper: str
    ratio: Sequence[str] = ()
    quantity: Sequence[str] = ()
    form: str = "{}"
    ours: str = ""
    page: str = ""
    command: str = ""
    quotes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Measured cycles beside the product of a formula's factors, as a page of `docs/` has them."""

    what: str
    formula: str
    factors: Sequence[int]
    cycles: int
    page: str
    command: str

    @property
    def ideal(self) -> int:
        """Cycles by the formula."""
        return math.prod(self.factors)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a system's area.

    Parameters
    ----------
    name : str
        The part.
    modules : Sequence[str]
        Patterns of its Verilog modules; what is below them belongs to it too.
    paper : float
        The paper's figure, in any unit that its other parts share; 0 if it has none.
    """

    name: str
    modules: Sequence[str]
    paper: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper; `name` is the folder of its units."""

    name: str
    order: int
    title: str
    venue: str = ""
    summary: str = ""
    headlines: Sequence[Headline] = ()
    cycles: Sequence[Cycles] = ()
    parts: Sequence[Part] = ()
    diagram: Diagram | None = None


def read_papers(folder: Path = PAPERS) -> list[Paper]:
    """Return all papers in their order."""
    papers = [_read(file) for file in sorted(folder.glob("*.toml"))]
    return sorted(papers, key=lambda paper: paper.order)


def _read(file: Path) -> Paper:
    """Read one paper's file."""
    tables = tomllib.loads(file.read_text())
    return Paper(
        name=file.stem,
        headlines=[Headline(**table) for table in tables.pop("headline", ())],
        cycles=[Cycles(**table) for table in tables.pop("cycles", ())],
        parts=[Part(**table) for table in tables.pop("part", ())],
        diagram=Diagram.of(table) if (table := tables.pop("diagram", None)) else None,
        **tables,
    )


def divided(parts: Sequence[Part], modules: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Divide the area of a design among its parts; what is left is the last, ``rest``.

    Parameters
    ----------
    parts : Sequence[Part]
        The parts; a part below another one is the inner one's.
    modules : Sequence[dict]
        `synth.mapped_design.ModuleArea` of a ``synth.json``, the top first.

    Returns
    -------
    dict[str, float]
        Areas in um2.
    """
    by_name = {module["name"]: module for module in modules}
    areas = dict.fromkeys([*(part.name for part in parts), "rest"], 0.0)

    def add(name: str, times: int, owner: str) -> None:
        for part in parts:
            if any(fnmatchcase(name, pattern) for pattern in part.modules):
                owner = part.name
        areas[owner] += by_name[name]["area_um2"] * times
        for inner, number in by_name[name]["below"].items():
            add(inner, number * times, owner)

    add(modules[0]["name"], 1, "rest")
    return {name: round(area, 3) for name, area in areas.items()}
