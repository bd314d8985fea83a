"""Reader of the papers' data for the report: one file per paper in ``synth/reference/papers/``.

A file contains the paper's title and ``[[headline]]`` tables with its claims. An implemented paper
also has ``[[cycles]]`` (measured cycles and the paper's formula), ``[[part]]`` (parts of its area),
``[areas]`` (areas of a netlist on a page), ``[occupancy]`` (the cycles of a step by kind of work),
``[[cause]]`` (the cycles of a token above its bound, by cause), and ``[diagram]`` (the boxes of
its figure). A new paper is a new file.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from synth.diagram import Diagram
from synth.occupancy import Occupancy, Work
from synth.waterfall import Cause

PAPERS = Path(__file__).with_name("reference") / "papers"

NOT_MEASURED = "not measured"
VERDICTS = ("reproduced", "partly", "contradicted", NOT_MEASURED)
"""What a measurement can show about a claim."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """One claim of the paper, and the measured figure: `ratio`, `quantity`, or `ours`.

    A headline with a `verdict` is a row of `docs/claims.md` (`synth.claims`).

    Parameters
    ----------
    claim, paper : str
        Summary of the claim, and the paper's figure.
    ratio : tuple[str, str], optional
        Two units whose area ratio is the measured figure.
    quantity : tuple[str, str], optional
        A unit, and a member of its delay-optimised netlist; `form` formats it.
    ours, published : str
        Otherwise: the figure measured on SmolLM2, and the one at the published dimensions.
    page, published_page, command : str
        Page below ``docs/`` that has `ours`, and the one that has `published` if it is another; the
        command that measures the figure.
    quotes : Sequence[str]
        Text on these pages; `ours` and `published` if empty.
    needs : str
        What the claim presupposes: model, memory, baseline.
    verdict, reason : str
        One of `VERDICTS`, and why it is not ``reproduced``.

    Raises
    ------
    ValueError
        If there is no measured figure, or more than one, unless the verdict is ``not measured``; if
        the verdict is unknown, or has no reason.
    """

    claim: str
    paper: str
    ratio: Sequence[str] = ()
    quantity: Sequence[str] = ()
    form: str = "{}"
    ours: str = ""
    published: str = ""
    page: str = ""
    published_page: str = ""
    command: str = ""
    quotes: Sequence[str] = ()
    needs: str = ""
    verdict: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        figures = sum(map(bool, (self.ratio, self.quantity, self.here)))
        if figures != (self.verdict != NOT_MEASURED):
            raise ValueError(
                f"the claim {self.claim!r} must have one of ratio, quantity and ours, and none if "
                f"its verdict is {NOT_MEASURED!r}"
            )
        if self.verdict and self.verdict not in VERDICTS:
            raise ValueError(
                f"the verdict on {self.claim!r} must be one of {', '.join(VERDICTS)}, "
                f"not {self.verdict!r}"
            )
        if self.verdict and not self.needs:
            raise ValueError(f"the verdict on {self.claim!r} must have what the claim needs")
        if self.verdict not in ("", VERDICTS[0]) and not self.reason:
            raise ValueError(f"the verdict {self.verdict!r} on {self.claim!r} must have a reason")

    @property
    def here(self) -> str:
        """The figures of the pages, on SmolLM2 and at the published dimensions."""
        return "; ".join(filter(None, (self.ours, self.published)))


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Measured cycles and the product of a formula's factors, from a page of `docs/`."""

    what: str
    formula: str
    factors: Sequence[int]
    cycles: int
    page: str
    command: str

    @property
    def ideal(self) -> int:
        """Cycles from the formula."""
        return math.prod(self.factors)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a system's area.

    Parameters
    ----------
    name : str
        The part.
    modules : Sequence[str]
        Patterns of its Verilog modules; their submodules are included.
    paper : float
        The paper's figure, in a unit common to all parts; 0 if it has none.
    """

    name: str
    modules: Sequence[str]
    paper: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Areas:
    """Areas of a netlist by part, from a page of `docs/`.

    Parameters
    ----------
    netlist : str
        What was synthesised.
    total : int
        The whole area in um2.
    page, command : str
        Page below `docs/` that has all areas, and the command that measures them.
    parts : Mapping[str, int]
        Area of each part in um2; the remainder is the last part, ``rest``.
    """

    netlist: str
    total: int
    page: str
    command: str
    parts: Mapping[str, int]

    def by_part(self) -> dict[str, float]:
        """Return the areas with the remainder.

        Raises
        ------
        ValueError
            If the parts are larger than the netlist.
        """
        rest = self.total - sum(self.parts.values())
        if rest < 0:
            raise ValueError(f"the parts of {self.netlist} are {-rest} um2 larger than it")
        return {**self.parts, "rest": float(rest)}


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
    areas: Areas | None = None
    occupancy: Occupancy | None = None
    causes: Sequence[Cause] = ()
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
        areas=Areas(**areas) if (areas := tables.pop("areas", None)) else None,
        occupancy=_occupancy(table) if (table := tables.pop("occupancy", None)) else None,
        causes=[Cause(**table) for table in tables.pop("cause", ())],
        diagram=Diagram.of(table) if (table := tables.pop("diagram", None)) else None,
        **tables,
    )


def _occupancy(table: dict[str, Any]) -> Occupancy:
    """Return the cycles of a step."""
    return Occupancy(work=[Work(**work) for work in table.pop("work")], **table)


def divided(parts: Sequence[Part], modules: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Divide the area of a design among its parts; the last, ``rest``, is the remainder.

    Parameters
    ----------
    parts : Sequence[Part]
        The parts; a module below several parts belongs to the innermost.
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
