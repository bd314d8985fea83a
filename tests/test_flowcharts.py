"""Flowcharts of the pages as SVG: the picture has all boxes, arrows and labels of the text."""

import re
from collections import Counter
from itertools import pairwise, product
from xml.etree import ElementTree

import pytest

from hdl.paths import ROOT
from systola.flowcharts import FONT, SMALLEST, flowchart_of

BLOCKS = {
    file.parent.name: block
    for file in sorted((ROOT / "docs").rglob("*.md"))
    for block in re.findall(r"^```mermaid\n(.*?)^```", file.read_text(), re.M | re.S)
}


def words_of(svg: ElementTree.Element) -> list[str]:
    """Return the words of all texts."""
    texts = ("".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text"))
    return sorted(" ".join(texts).split())


def test_each_paper_has_a_flowchart() -> None:
    assert set(BLOCKS) == {"kelle", "lad", "meadow", "p3llm", "veda"}


def arrows_of(text: str) -> list[tuple[str, str, str, bool]]:
    """Return the source, target and label of each arrow, and whether it has two heads."""
    arrows = []
    for line in text.splitlines():
        first, *parts = re.split(r' (<?)-- "([^"]*)" --> ', line.strip())
        boxes = [first, *parts[2::3]]
        for (left, right), back, label in zip(
            pairwise(boxes), parts[::3], parts[1::3], strict=True
        ):
            ends = product(left.split(" & "), right.split(" & "))
            arrows += [(*pair, label, back == "<") for pair in ends]
    return arrows


@pytest.mark.parametrize("name", BLOCKS)
def test_picture_has_all_boxes_arrows_and_labels(name: str) -> None:
    text, arrows = BLOCKS[name], arrows_of(BLOCKS[name])
    boxes = re.findall(r'^ *(?:subgraph )?\w+[\[(]+"([^"]*)"', text, re.M)
    assert len(boxes) > 9 and len(arrows) > 20
    svg = ElementTree.fromstring(flowchart_of(text))
    labels = [*boxes, *(label for _source, _target, label, _both in arrows)]
    assert words_of(svg) == sorted(" ".join(labels).replace("<br/>", " ").split())
    lines = [one for one in svg.iter() if "flowchart-link" in one.get("class", "")]
    # Mermaid numbers the arrows between the same two boxes.
    found = Counter(one.get("data-id", "").rpartition("_")[0] for one in lines)
    assert found == Counter(f"L_{source}_{target}" for source, target, *_label in arrows)
    heads = Counter(
        tuple(f"marker-{end}" in one.keys() for end in ("start", "end")) for one in lines
    )
    assert heads == Counter((both, True) for *_names, both in arrows)


def test_smallest_letters_are_legible() -> None:
    svg = flowchart_of('flowchart TB\na["one"] --> b["two"]')
    (least,) = re.findall(r"min-width: (\d+)px", svg)
    width = re.findall(r'viewBox="\S+ \S+ (\S+)', svg)[0]
    assert abs(int(least) / float(width) * FONT - SMALLEST) < 0.1
    assert min(map(int, re.findall(r"font-size:(\d+)px", svg))) == FONT
