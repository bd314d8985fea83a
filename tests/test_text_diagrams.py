"""Diagrams of characters become pictures: each line, arrow and word is at its place."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from hdl.paths import ROOT
from systola.text_diagrams import ARROWS, HEIGHT, LINES, UP, WIDTH, drawing_of, is_diagram

Point = tuple[float, float]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def parts(text: str) -> tuple[list[ElementTree.Element], ...]:
    """Return the paths and the texts of a drawing."""
    root = ElementTree.fromstring(drawing_of(text))
    return root.findall("path"), root.findall("text")


def segments(path: ElementTree.Element) -> list[tuple[Point, Point]]:
    """Return the ends of a path's lines, absolute."""
    found = []
    for x, y, kind, to_x, to_y in re.findall(
        r"M(\S+) (\S+?)([lL])(\S+?) ([^ MlL]+)", path.attrib["d"]
    ):
        start = float(x), float(y)
        end = float(to_x), float(to_y)
        relative = kind == "l"
        found.append((start, (start[0] + end[0], start[1] + end[1]) if relative else end))
    return found


def test_a_box_is_closed() -> None:
    """Each end of a line in a box without words is the end of another."""
    (lines, _heads, _shades), _texts = parts("┌─┬┐\n│ ├┤\n└─┴┘\n")
    ends = [point for segment in segments(lines) for point in segment]
    assert len(ends) > 40 and all(ends.count(end) > 1 for end in ends)


def test_an_arrow_continues_its_line_to_the_next_cell() -> None:
    (lines, heads, _shades), _texts = parts("─►x")
    tips = [float(x) for x in re.findall(r"M(\S+) ", heads.attrib["d"])]
    assert tips == [2 * WIDTH]
    assert max(end[0] for _start, end in segments(lines)) == WIDTH


def test_words_are_at_their_columns_and_escaped() -> None:
    _paths, texts = parts(" a < b   c│d\n   ▓")
    assert [(text.text, float(text.attrib["x"]) / WIDTH) for text in texts] == [
        ("a < b", 1), ("c", 9), ("d", 11),
    ]  # fmt: skip
    assert [float(text.attrib["textLength"]) / WIDTH for text in texts] == [5, 1, 1]
    assert all(0 < float(text.attrib["y"]) < HEIGHT for text in texts)


def diagrams() -> list[tuple[str, str]]:
    """Return the pages and texts of all diagrams."""
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for language, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.M | re.S)
        if not language and is_diagram(text)
    ]


def test_the_pages_have_diagrams() -> None:
    assert len(diagrams()) > 60


@pytest.mark.parametrize(("page", "text"), diagrams())
def test_no_line_of_a_page_is_a_column_off(page: str, text: str) -> None:
    """A line that ends in a space must not continue one column to the left or right."""
    rows = text.split("\n")
    width = max(map(len, rows)) + 1
    rows = [row.ljust(width) for row in rows]

    def leads_up(letter: str) -> bool:
        return letter in "▲▼" or UP in LINES.get(letter, ())

    def leads_down(letter: str) -> bool:
        return letter in "▲▼" or (0, 1) in LINES.get(letter, ())

    for above, below in pairwise(rows):
        for x in range(1, width - 1):
            if leads_down(above[x]) and below[x] == " ":
                for near in (x - 1, x + 1):
                    alone = leads_up(below[near]) and not leads_down(above[near])
                    assert not alone, f"{page}:\n{above}\n{below}"


def test_all_letters_of_lines_are_known() -> None:
    """No diagram has a letter of a line that the drawing would show as a word."""
    boxes = {letter for _page, text in diagrams() for letter in text if "─" <= letter <= "◿"}
    assert boxes <= {*LINES, *ARROWS, "▓"}
