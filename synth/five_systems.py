"""The report's first section: the pictures and tables of `docs/comparison.md`, with their figures.

The page is written from `docs/comparison.json` by ``make report DOCS=1``. The section takes what
the page has, so that both show the same.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from hdl.paths import ROOT
from synth.cells import Cell, Table, page_link
from synth.gallery import Picture

PAGE = ROOT / "docs" / "comparison.md"


@dataclass(frozen=True, kw_only=True)
class FiveSystems:
    """The comparison of the systems on one model; `tables` has names as on the page."""

    note: str
    link: str
    pictures: list[Picture]
    tables: dict[str, Table]


def five_systems(directory: Path, page: Path = PAGE) -> FiveSystems:
    """Return the pictures and the generated tables of the page."""
    text = page.read_text()
    link = page_link(page.name, directory)
    pictures = [
        Picture(title=title, svg=_drawing(page.parent / file))
        for title, file in re.findall(r"!\[([^\]]*)\]\(([^)]+\.svg)\)", text)
    ]
    blocks = re.findall(r"<!-- ([\w-]+): written by .*?-->\n(.*?)<!-- end of \1 -->", text, re.S)
    paragraphs = [part for part in text.split("\n\n") if re.match(r"\w", part)]
    return FiveSystems(
        note=_plain(paragraphs[0]) if paragraphs else "",
        link=link,
        pictures=pictures,
        tables={name: table for name, block in blocks if (table := markdown_table(block, link))},
    )


def markdown_table(block: str, link: str) -> Table | None:
    """Return a table of a page, whose figures have a link to the page; None if there is none."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in block.splitlines()
        if line.startswith("|")
    ]
    if len(lines) < 3:
        return None
    rows = []
    for label, *values in lines[2:]:
        cells = [Cell(text=_plain(label))]
        for value in values:
            number = bool(re.match(r"[\d,.]+( †)?$", value))
            shown = Cell(text=_plain(value), link=link if number else "", kept=number)
            cells.append(shown)
        rows.append(cells)
    return Table(columns=[_plain(name) for name in lines[0]], rows=rows)


def _drawing(file: Path) -> str:
    """Return the text of an SVG file from its first element."""
    text = file.read_text()
    return text[text.index("<svg") :]


def _plain(markdown: str) -> str:
    """Return a text without the marks of links, code and emphasis."""
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", markdown)
    return " ".join(text.replace("`", "").replace("**", "").split())
