import fnmatch
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from hdl.catalog import CATALOG
from hdl.paths import ROOT
from synth.diagram import Arrow, Box, Diagram, Point, draw_diagram
from synth.papers import Paper, read_papers
from tests.synth.drawings import faults_of, words_of

DIAGRAMS = {paper.title: paper.diagram for paper in read_papers() if paper.diagram}

Rectangle = tuple[float, float, float, float]
"""Left, right, bottom, top."""


def rectangle(box: Box) -> Rectangle:
    (left, right), (bottom, top) = box.spans
    return left, right, bottom, top


def meet(one: Rectangle, other: Rectangle) -> bool:
    """Whether two rectangles, or two lines, have more than edges in common."""
    left, right, bottom, top = one
    other_left, other_right, other_bottom, other_top = other
    return left < other_right and other_left < right and bottom < other_top and other_bottom < top


def pieces(route: list[Point]) -> list[Rectangle]:
    """Return an arrow's pieces, a twentieth of a unit wide."""
    wide = 0.05
    return [
        (min(x, to_x) - wide, max(x, to_x) + wide, min(y, to_y) - wide, max(y, to_y) + wide)
        for (x, y), (to_x, to_y) in pairwise(route)
    ]


def faults(diagram: Diagram) -> Iterator[str]:
    """Return the faults of a diagram's boxes, arrows and labels."""
    figure = draw_diagram(diagram)
    yield from faults_of(figure)
    boxes = {box.name: rectangle(box) for box in diagram.boxes}
    for (name, one), (other, another) in combinations(boxes.items(), 2):
        if meet(one, another):
            yield f"{name} lies on {other}"
    routes = [(arrow.between, pieces(route)) for arrow, route in diagram.routes()]
    for between, route in routes:
        # An arrow touches its own boxes at its ends, and enters none.
        for name, (left, right, bottom, top) in boxes.items():
            inner = left + 0.06, right - 0.06, bottom + 0.06, top - 0.06
            if any(meet(piece, inner) for piece in route):
                yield f"the arrow {between} enters {name}"
    for (between, route), (others, other) in combinations(routes, 2):
        if any(meet(one, another) for one in route for another in other):
            yield f"the arrows {between} and {others} meet"
    pixels = figure.axes[0].transData.inverted()
    words = [(text, pixels.transform(extent.get_points())) for text, extent in words_of(figure)]
    for text, ((left, bottom), (right, top)) in words:
        place = left, right, bottom, top
        for between, route in routes:
            if any(meet(place, piece) for piece in route):
                yield f"{text!r} lies on the arrow {between}"
        owners = [box for box in diagram.boxes if text in (box.text, box.note)]
        for box in diagram.boxes:
            x, right_x, y, top_y = rectangle(box)
            whole = x < left and right < right_x and y < bottom and top < top_y
            if meet(place, rectangle(box)) and not whole:
                yield f"{text!r} crosses the edge of {box.name}"
            if whole and box not in owners:
                yield f"{text!r} is in {box.name}"
            if owners == [box] and not whole:
                yield f"{text!r} is not in {box.name}"


def unshown(name: str, diagram: Diagram) -> Iterator[str]:
    """Yield what a paper's diagram does not show of the paper's units and folders."""
    home = ROOT / "hdl" / name
    files = [file.relative_to(home).with_suffix("") for file in home.rglob("*.py")]
    modules = {".".join(file.parts) for file in files if file.name != "__init__"}
    for shown in diagram.boxes:
        if bool(shown.units) != (shown.kind != "outside"):
            yield f"{shown.name} is {shown.kind} and shows {len(shown.units)} units"
    patterns = [pattern for shown in diagram.boxes for pattern in shown.units]
    for pattern in patterns:
        if not fnmatch.filter(modules, pattern):
            yield f"no module is {pattern}"
    found = {module for pattern in patterns for module in fnmatch.filter(modules, pattern)}
    for entry in CATALOG:
        # A unit with the paper's name is the accelerator, or a tile of it.
        if entry.paper == name and not entry.top.startswith(name):
            module = entry.unit.__module__.removeprefix(f"hdl.{name}.")
            if module not in found:
                yield f"no box shows {module}"
    for folder in {module.partition(".")[0] for module in modules if "." in module}:
        if not any(module.startswith(f"{folder}.") for module in found):
            yield f"no box shows {folder}"


@pytest.mark.parametrize(
    "paper", [paper for paper in read_papers() if paper.diagram], ids=lambda paper: paper.name
)
def test_boxes_show_all_units_and_folders_of_the_paper(paper: Paper) -> None:
    assert paper.diagram and not list(unshown(paper.name, paper.diagram))


@pytest.mark.parametrize(
    ("name", "box", "change", "fault"),
    (
        ("lad", "linear", None, "no box shows linear.linear_module"),
        ("lad", "eas", None, "no box shows eas"),
        ("p3llm", "npu", {"kind": "outside"}, "npu is outside and shows 2 units"),
        ("p3llm", "npu", {"kind": "outside", "units": ()}, "no box shows quantisers"),
        ("p3llm", "scaler", {"units": ()}, "scaler is compute and shows 0 units"),
        ("kelle", "sfu", {"units": ("sfus",)}, "no module is sfus"),
    ),
)
def test_unit_without_a_box_is_found(name: str, box: str, change: dict | None, fault: str) -> None:
    (diagram,) = (paper.diagram for paper in read_papers() if paper.name == name)
    assert diagram
    boxes = [
        replace(one, **change or {}) if one.name == box else one
        for one in diagram.boxes
        if change is not None or one.name != box
    ]
    assert fault in list(unshown(name, replace(diagram, boxes=boxes)))


@pytest.mark.parametrize("title", DIAGRAMS)
def test_boxes_arrows_and_words_keep_apart(title: str) -> None:
    assert not list(faults(DIAGRAMS[title]))


def box(name: str, x: float, y: float, **more) -> Box:
    return Box(
        **{"name": name, "text": name, "at": (x, y), "size": (1, 1), "kind": "compute"} | more
    )


BOXES = [box("a", 0.5, 0.5), box("b", 2.5, 0.5), box("c", 4.5, 0.5)]


@pytest.mark.parametrize(
    ("boxes", "arrow", "fault"),
    (
        ([*BOXES, box("d", 4.9, 0.9)], Arrow(between=("a", "b")), "c lies on d"),
        (BOXES, Arrow(between=("a", "c")), r"the arrow \('a', 'c'\) enters b"),
        (BOXES, Arrow(between=("a", "b"), text="x", text_at=(2.0, 1.0)), "'x' lies on the arrow"),
        (
            [*BOXES, box("wide " * 9, 6.5, 0.5)],
            Arrow(between=("a", "b")),
            "crosses the edge of wide",
        ),
        ([*BOXES, box("e", 7.6, 0.5)], Arrow(between=("a", "b")), "'e' is outside the figure"),
    ),
)
def test_each_fault_of_a_diagram_is_found(boxes: list, arrow: Arrow, fault: str) -> None:
    diagram = Diagram(figure="Figure 0", size=(8, 2), boxes=boxes, arrows=[arrow])
    assert [found for found in faults(diagram) if re.search(fault, found)]


def test_arrows_are_straight_between_boxes_that_face_each_other_and_turn_otherwise() -> None:
    via = [(1.0, 1.8), (5.0, 1.8)]
    arrows = [Arrow(between=("a", "b")), Arrow(between=("a", "c"), via=via)]
    diagram = Diagram(figure="Figure 0", size=(8, 2), boxes=BOXES, arrows=arrows)
    assert [route for _, route in diagram.routes()] == [
        [(1.5, 1.0), (2.5, 1.0)],
        [(1.0, 1.5), (1.0, 1.8), (5.0, 1.8), (5.0, 1.5)],
    ]
    slanted = Diagram(
        figure="Figure 0",
        size=(8, 2),
        boxes=BOXES,
        arrows=[Arrow(between=("a", "b"), via=[(2.0, 1.8), (2.2, 1.2)])],
    )
    with pytest.raises(ValueError, match="the arrow from a to b must turn at right angles"):
        list(slanted.routes())
