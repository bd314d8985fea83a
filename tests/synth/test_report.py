import json
import re
from collections import Counter as Count
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest

from hdl.catalog import CATALOG
from synth import report
from synth.figures import kept_figures
from synth.five_systems import five_systems
from synth.gallery import laid_out
from synth.liberty import GENERIC, read_library
from synth.long_tests import FILE, long_tests
from synth.papers import Headline, Paper, read_papers
from synth.report import write_report
from synth.results import Record, collect, collect_studies
from synth.svg import LARGEST, SMALLEST, SYSTEMS, width_at
from synth.synthesis import measure_design
from synth.unit_rows import operations_each_cycle
from tests.synth.designs import Counter, emit

NARROW = 390 - 2 * 16
"""Pixels for a picture on a screen of 390 pixels with the page's margins."""

NO_OPERATORS = Record(file=Path("operators.json"))
VOID = {"meta", "br"}


@dataclass
class FakeEntry:
    """What the report reads of a catalog entry."""

    top: str = "design_under_test"
    paper: str = "kelle"
    summary: str = "counts"
    source: str = "Section 0"
    latency: str = "1 cycle"
    throughput: str = "1 item/cycle"
    presets: dict = field(default_factory=dict)
    files: dict = field(default_factory=lambda: {"docs": PurePosixPath("docs/peers.md")})


class Page(HTMLParser):
    """A page's links with their words and whether they are kept, its elements and their parents."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.open: list[tuple[str, dict]] = []
        self.tables: list[list[tuple[str, dict]]] = []
        self.links: list[tuple[str, str, bool]] = []
        self.ids: Count[str] = Count()
        self.words: list[str] = []
        self.feed(file.read_text())
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list) -> None:
        values = dict(attrs)
        self.ids.update([values["id"]] if "id" in values else [])
        if tag == "table":
            self.tables.append(list(self.open))
        if tag == "a":
            self.links.append(("", values["href"], values.get("class") == "kept"))
        if tag not in VOID:
            self.open.append((tag, values))

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.ids.update([dict(attrs)["id"]] if "id" in dict(attrs) else [])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if "style" not in {tag for tag, _ in self.open}:
            self.words.append(data.strip())
        if self.open and self.open[-1][0] == "a":
            words, link, kept = self.links[-1]
            self.links[-1] = (words + data, link, kept)


def page_of(catalog, build: Path, *, figures: dict | None = None, operators=NO_OPERATORS) -> Page:
    (file,) = write_report(
        catalog,
        collect(build),
        operators,
        build / "report",
        figures=figures or {},
        studies=collect_studies(build),
    )
    return Page(file)


def write(file: Path, values: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


@pytest.fixture
def build(tmp_path: Path) -> Path:
    home = tmp_path / "build" / "design_under_test" / "smollm2"
    home.mkdir(parents=True)
    files = emit(Counter(memory=True), home / "rtl")
    library = read_library(GENERIC, origin="test")
    measure_design(files, "design_under_test", library, home, preset="smollm2")
    write(home / "sim.json", {"top": "x", "utilization": 0.957})
    write(home.parent / "tiny" / "sim.json", {"top": "x", "utilization": 0.061})
    return tmp_path / "build"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a build directory in which there is nothing."""
    return page_of(CATALOG, tmp_path_factory.mktemp("fresh"), figures=kept_figures())


def test_every_figure_is_the_one_in_its_json(build: Path) -> None:
    page = page_of([FakeEntry()], build)
    shown = {(words, link) for words, link, _ in page.links if link.endswith(".json")}
    for _, link in shown:
        assert (page.file.parent / link).is_file()
    home = build / "design_under_test" / "smollm2"
    synth = json.loads((home / "synth.json").read_text())
    file = f"../design_under_test/smollm2/synth/{synth['liberty']}/synth.json"
    assert (f"{synth['nand2_equivalents']:,.0f}", file) in shown
    assert (f"{synth['memory_bits']:,}", file) in shown
    assert ("95.7%", "../design_under_test/smollm2/sim.json") in shown
    assert not any(kept for _, link, kept in page.links if link.startswith("../design"))


def test_tiny_presets_are_folded_and_in_no_picture(build: Path) -> None:
    text = page_of([FakeEntry()], build).file.read_text()
    row, inside = text.split('<summary class="unit">')[1].split("</summary>")
    assert "95.7%" in row and "6.1%" not in row and "6.1%" in inside
    pictures = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert "95.7%, smollm2" in pictures and "6.1%" not in pictures


def test_new_clone_shows_stored_figures_with_marks(fresh: Page) -> None:
    figures = [(words, kept) for words, link, kept in fresh.links if link.endswith("figures.json")]
    assert len(figures) > 200 and all(kept and words.strip() for words, kept in figures)
    assert not [words for words in fresh.words if words == "-" or re.search(r"\de[+-]\d", words)]
    text = fresh.file.read_text()
    assert "are kept in the repository" in text
    for words in (
        "Five systems on one model",
        "Dies",
        "Kelle: systolic_evictor",
        "Occupancy",
        "Area by part",
        "Utilisation",
        "ITA softmax",
        "2.75 %",
        "95.7 %",
    ):
        assert words in text
    assert text.index('id="five-systems"') == text.index("<section id=") + len("<section ")
    assert "not measured</td>" not in text.split('id="kelle"')[1].split('id="units"')[0]
    assert text.count("<svg") >= 10 + 2 + 1 + 2 + 2


def test_each_system_has_its_pictures(fresh: Page) -> None:
    text = fresh.file.read_text()
    papers = [paper for paper in read_papers() if paper.diagram]
    assert {paper.name for paper in papers} == set(SYSTEMS)
    for paper in papers:
        assert f"{paper.title}, after its " in text
        assert f"Cycles of a step of {paper.title} by kind of work" in text
        assert f"Area of {paper.title} by part" in text


def test_each_picture_is_legible_on_a_narrow_screen(fresh: Page) -> None:
    drawings = re.findall(r"<svg.*?</svg>", fresh.file.read_text(), flags=re.S)
    form = r'style="min-width: (\d+)px; max-width: (\d+)px"'
    widths = [re.search(form, drawing) for drawing in drawings]
    assert len(drawings) > 30 and all(widths)
    for drawing, width in zip(drawings, widths, strict=True):
        assert width and int(width[1]) >= width_at(drawing, SMALLEST)
        assert int(width[2]) <= width_at(drawing, LARGEST)
    # The plots of the report itself fit the screen without scrolling.
    narrow = [drawing for drawing in drawings if width_at(drawing, SMALLEST) <= NARROW]
    wide = [*laid_out().pictures, *five_systems(fresh.file.parent).pictures]
    assert len(narrow) >= len(drawings) - 5 - len(wide)


def test_the_first_section_has_the_tables_and_pictures_of_the_comparison(tmp_path: Path) -> None:
    page = tmp_path / "comparison.md"
    (tmp_path / "one.svg").write_text("<?xml?>\n<svg><text/></svg>")
    page.write_text(
        "# Comparison\n\nOne [model](m.md), `all` systems.\n\n![a plot](one.svg)\n\n"
        "<!-- rows: written by `make report DOCS=1` -->\n| | A | B |\n|---|---|---|\n"
        "| cycles | 1,234 | 5.6 † |\n"
        "<!-- end of rows -->\n"
    )
    found = five_systems(tmp_path, page)
    assert found.note == "One model, all systems."
    assert [(picture.title, picture.svg) for picture in found.pictures] == [
        ("a plot", "<svg><text/></svg>")
    ]
    (row,) = found.tables["rows"].rows
    assert [cell.text for cell in row] == ["cycles", "1,234", "5.6 †"]
    assert all(cell.kept and cell.link for cell in row[1:])


def test_each_unit_has_one_row_and_every_link_leads_somewhere(fresh: Page) -> None:
    text = fresh.file.read_text()
    shown = re.findall(r'<details id="unit-(\w+)">', text)
    assert sorted(shown) == sorted(entry.top for entry in CATALOG)
    for _, link, _ in fresh.links:
        inside = link.removeprefix("#")
        assert inside in fresh.ids if link != inside else (fresh.file.parent / link).is_file()


def test_the_page_needs_no_other_file_and_no_network(fresh: Page) -> None:
    text = fresh.file.read_text()
    assert "<script" not in text and "<link" not in text and "<img" not in text
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert not re.findall(r"@import|url\((?!#)", text)
    assert max(fresh.ids.values()) == 1


def test_every_table_is_in_a_box_of_the_page_width(fresh: Page) -> None:
    assert len(fresh.tables) > len(CATALOG)
    for above in fresh.tables:
        assert above[-1] == ("div", {"class": "scroll"})
    assert ".scroll { max-width: 100%; overflow-x: auto; }" in fresh.file.read_text()


def test_the_page_is_the_same_in_every_run(build: Path) -> None:
    texts = {page_of([FakeEntry()], build).file.read_text() for _ in range(2)}
    assert len(texts) == 1


def test_headlines_are_measured_from_the_units_that_they_name(tmp_path: Path) -> None:
    for top, gates in (("systolic_evictor", 11.0), ("systolic_array", 1000.0)):
        point = {"recipe": "area", "nand2_equivalents": gates, "area_um2": 1.0, "power_mw": None}
        points = [point | {"fmax_mhz": 567.0}, point | {"recipe": "speed", "fmax_mhz": 1234.0}]
        figures = {"top": top, "memory_bits": 0, "liberty": "none", "points": points}
        write(tmp_path / top / "paper" / "synth" / "none" / "synth.json", figures)
    catalog = [entry for entry in CATALOG if entry.top.startswith("systolic_")]
    links = page_of(catalog, tmp_path).links
    assert ("1.10%", "../systolic_evictor/paper/synth/none/synth.json", False) in links
    clock = "1,234 MHz (default wire load)"
    assert (clock, "../systolic_array/paper/synth/none/synth.json", False) in links


def test_build_has_priority_over_stored_figures(tmp_path: Path) -> None:
    write(tmp_path / "sfu" / "smollm2" / "sim.json", {"top": "sfu", "utilization": 0.123})
    links = page_of(CATALOG, tmp_path, figures=kept_figures()).links
    assert ("12.3%", "../sfu/smollm2/sim.json", False) in links


def test_a_study_of_this_build_is_shown(tmp_path: Path) -> None:
    claim = {"what": "it helps", "paper": "much", "ours": "a little", "holds": "no"}
    write(tmp_path / "study" / "veda.json", {"claims": [claim]})
    page = page_of(CATALOG, tmp_path)
    assert ("a little", "../study/veda.json", False) in page.links
    assert "it helps" in page.words


def test_a_paper_that_is_added_has_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kelle = read_papers()[0]
    added = Paper(
        name="added",
        order=9,
        title="An added paper",
        headlines=[Headline(claim="it is fast", paper="very", ours="slow", page="peers.md")],
        diagram=replace(kelle.diagram, figure="Figure 99") if kelle.diagram else None,
    )
    monkeypatch.setattr(report, "read_papers", lambda: [kelle, added])
    entries = [*CATALOG, FakeEntry(paper="added")]
    text = page_of(entries, tmp_path, figures=kept_figures()).file.read_text()
    assert text.count("An added paper") == 4
    assert "Figure 99" in text and "it is fast" in text
    assert 'id="unit-design_under_test"' in text


def test_the_record_of_long_tests_is_summed_by_file(tmp_path: Path) -> None:
    file = tmp_path / "passes.json"
    passes = {
        "tests/test_a.py::test_one[x::y]": {"seconds": 1000.4, "commit": "aaaaaaaaaaaa"},
        "tests/test_a.py::test_two": {"seconds": 500.3, "commit": "bbbbbbbbbbbb"},
        "tests/test_b.py::test_one": {"seconds": 2.0, "commit": "aaaaaaaaaaaa"},
    }
    write(file, passes)
    assert [[cell.text for cell in row] for row in long_tests(tmp_path, file).rows] == [
        ["tests/test_a.py", "2", "1,501", "aaaaaaaa, bbbbbbbb"],
        ["tests/test_b.py", "1", "2", "aaaaaaaa"],
        ["all", "3", "1,503", "aaaaaaaa, bbbbbbbb"],
    ]


def test_the_page_shows_how_many_long_tests_passed(fresh: Page) -> None:
    passed = len(json.loads(FILE.read_text()))
    shown = {words for words, link, kept in fresh.links if link.endswith(FILE.name) and kept}
    assert f"{passed:,}" in shown


def test_operations_are_counted_by_the_units_parameters() -> None:
    counted = {
        entry.top: known
        for entry in CATALOG
        if (known := operations_each_cycle(entry.top, entry.presets["smollm2"]))
    }
    assert counted["systolic_array"] == ("8-bit multiply-add", 32 * 32 * 2)
    assert counted["flexible_pe_array"] == ("FP16 multiply-add", 8 * 8 * 2)
    assert counted["voting_engine"][1] == 2 and counted["element_serial_softmax"][1] == 1
    assert {entry.top for entry in CATALOG} - set(counted) == {"kv_edram", "refresh_controller"}
