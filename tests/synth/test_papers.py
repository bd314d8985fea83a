import re
import shlex
from importlib.util import find_spec

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.paths import ROOT
from synth.occupancy import SHADES, Occupancy, Work
from synth.papers import Areas, Cycles, Headline, Paper, Part, divided, read_papers

PAPERS = read_papers()
BUILT = {entry.paper for entry in CATALOG}
STATED = [
    (paper.name, item)
    for paper in PAPERS
    for item in (*paper.cycles, *(headline for headline in paper.headlines if headline.here))
]


def test_every_paper_that_is_built_has_all_that_its_section_shows() -> None:
    for paper in PAPERS:
        if paper.name in BUILT:
            assert paper.summary and paper.headlines and paper.cycles and paper.parts
            assert paper.diagram, paper.name
            assert (ROOT / "docs" / paper.name / "README.md").is_file()


@pytest.mark.parametrize(("paper", "item"), STATED, ids=str)
def test_stated_figure_is_on_its_page(paper: str, item) -> None:
    if isinstance(item, Cycles):
        page = (ROOT / "docs" / item.page).read_text()
        assert f"{item.cycles:,}" in page
        assert all(f"{factor:,}" in page for factor in item.factors)
    else:
        ours, published = (
            (ROOT / "docs" / name).read_text() if name else ""
            for name in (item.page, item.published_page or item.page)
        )
        for quote in item.quotes or filter(None, (item.ours, item.published)):
            assert quote in ours + published
        for text, page in ((item.ours, ours), (item.published, published)):
            assert not [x for x in re.findall(r"\d[\d,.]*\d", text) if x not in page]


@pytest.mark.parametrize(("paper", "item"), STATED, ids=str)
def test_commands_name_units_and_presets_that_exist(paper: str, item) -> None:
    words = dict(w.split("=", 1) for w in shlex.split(item.command) if re.match(r"\w+=", w))
    if "study" in item.command:
        assert words in ({"PAPER": paper}, {"PAPER": paper, "FULL": "1"})
    elif "perplexity" in item.command:
        assert words["TOP"] == paper
    elif module := re.match(r"python -m (\S+)", item.command):
        assert find_spec(module[1]) is not None
    else:
        entry = entry_named(words["TOP"])
        assert words["PRESET"] in entry.presets


def on_page(number: int, page: str) -> bool:
    """Whether a page contains a number, with commas or without."""
    text = (ROOT / "docs" / page).read_text()
    return bool(re.search(rf"(?<![\d,.])({number}|{number:,})(?![\d]|,\d)", text))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_cycles_and_areas_of_a_system_are_on_their_pages(paper: Paper) -> None:
    if known := paper.occupancy:
        for number in (known.total, *(work.cycles for work in known.work)):
            assert on_page(number, known.page), number
        assert {work.kind for work in known.work} <= set(SHADES)
    if areas := paper.areas:
        own = areas.parts.values()
        assert areas.total == sum(own) or on_page(areas.total, areas.page)
        assert not [number for number in own if not on_page(number, areas.page)]


def test_work_and_parts_are_not_larger_than_the_whole() -> None:
    with pytest.raises(ValueError, match="2 cycles more than the step"):
        Occupancy(
            step="a step", unit="a port", total=8, page="", command="",
            work=[Work(name="x", kind="linear", cycles=5, times=2)],
        )  # fmt: skip
    areas = Areas(netlist="one", total=8, page="", command="", parts={"x": 9})
    with pytest.raises(ValueError, match="1 um2 larger"):
        areas.by_part()


@pytest.mark.parametrize(
    ("fields", "message"),
    (
        ({}, "'it is fast' must have one of ratio, quantity and ours"),
        ({"ours": "slow", "ratio": ("sfu", "veda")}, "must have one of ratio, quantity and ours"),
        ({"verdict": "not measured", "ours": "slow"}, "and none if its verdict is 'not measured'"),
        ({"ours": "slow", "verdict": "no"}, "must be one of reproduced, partly, .*, not 'no'"),
        ({"ours": "slow", "verdict": "reproduced"}, "must have what the claim needs"),
        ({"ours": "slow", "verdict": "partly", "needs": "x"}, "'partly' .* must have a reason"),
    ),
)
def test_a_claim_without_a_measurement_or_a_reason_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Headline(claim="it is fast", paper="very", **fields)


def test_measured_headlines_name_units() -> None:
    for paper in PAPERS:
        for headline in paper.headlines:
            for top in (*headline.ratio, *headline.quantity[:1]):
                assert entry_named(top).top == top


def module(name: str, area: float, **below: int) -> dict:
    return {"name": name, "area_um2": area, "below": below}


def test_area_belongs_to_the_innermost_part_above_it() -> None:
    modules = [
        module("chip", 1.0, array_4=2, shared=1),
        module("array_4", 10.0, cell=3, evictor_4=1),
        module("cell", 100.0),
        module("evictor_4", 1000.0, shared=2),
        module("shared", 5.0),
    ]
    parts = [Part(name="array", modules=["array_*"]), Part(name="evictor", modules=["evictor_*"])]
    areas = divided(parts, modules)
    assert areas == {"array": 2 * (10 + 3 * 100), "evictor": 2 * (1000 + 2 * 5), "rest": 1 + 5}
