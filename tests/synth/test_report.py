import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.errors import UserError
from hdl.paths import ROOT
from synth.liberty import GENERIC, read_library
from synth.report import MARKS, collect, write_readme_table, write_report
from synth.synthesis import measure_design
from tests.synth.designs import Counter, emit


@dataclass
class FakeEntry:
    """What the report reads of a catalog entry."""

    top: str = "design_under_test"
    paper: str = "none"
    summary: str = "counts"
    latency: str = "1 cycle"
    throughput: str = "1 a cycle"
    presets: dict = field(default_factory=dict)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    home = tmp_path / "build" / "design_under_test" / "tiny"
    home.mkdir(parents=True)
    files = emit(Counter(memory=True), home / "rtl")
    library = read_library(GENERIC, origin="test")
    measure_design(files, "design_under_test", library, home, preset="tiny")
    (home / "sim.json").write_text(json.dumps({"top": "x", "utilization": 0.957}))
    return tmp_path / "build"


def test_every_figure_is_the_one_in_its_json(build: Path) -> None:
    pages = write_report([FakeEntry()], collect(build), build / "report")
    assert [page.name for page in pages] == ["report.html", "report.md"]
    text = pages[1].read_text()
    links = re.findall(r"\[([^\]]+)\]\(([^)]+\.json)\)", text)
    assert links
    for _, link in links:
        assert (build / "report" / link).is_file()
    synth = json.loads((build / "design_under_test/tiny/synth.json").read_text())
    figures = [figure for figure, link in links if link.endswith("synth.json")]
    assert f"{synth['nand2_equivalents']:,.0f}" in figures
    assert f"{synth['memory_bits']:,}" in figures
    assert ("95.7%", "../design_under_test/tiny/sim.json") in links


def test_headlines_are_measured_from_the_units_that_they_name(tmp_path: Path) -> None:
    for top, gates in (("systolic_evictor", 11.0), ("systolic_array", 1000.0)):
        home = tmp_path / top / "paper"
        home.mkdir(parents=True)
        figures = {"top": top, "preset": "paper", "liberty_digest": "x", "memory_bits": 0}
        figures |= {"nand2_equivalents": gates, "liberty": "none", "fmax_mhz": 1234.0}
        (home / "synth.json").write_text(json.dumps(figures))
    page = write_report([], collect(tmp_path), tmp_path / "report")[1].read_text()
    assert "[0.011 (paper)](../systolic_evictor/paper/synth.json)" in page
    assert "[1234 (paper)](../systolic_array/paper/synth.json)" in page


def test_the_page_is_the_same_in_every_run(build: Path) -> None:
    first = [page.read_text() for page in write_report([FakeEntry()], collect(build), build / "a")]
    second = [page.read_text() for page in write_report([FakeEntry()], collect(build), build / "b")]
    assert first == second


def test_the_page_has_the_peers_and_the_papers(build: Path) -> None:
    html, markdown = (
        page.read_text() for page in write_report([FakeEntry()], collect(build), build / "report")
    )
    for words in ("2.75 % of the area", "Gemmini", "150K LUT"):
        assert words in html and words in markdown
    assert html.count("<svg") >= 1
    for plot in re.findall(r"\]\((\w+\.svg)\)", markdown):
        assert (build / "report" / plot).is_file()


def test_the_readme_table_is_renewed_between_its_marks(build: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    write_readme_table([FakeEntry()], collect(build), readme)
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| `design_under_test` | counts | 1 cycle | 1 a cycle | " in text
    assert "+ 128 bits (tiny, generic_nand2_equivalents) |" in text
    readme.write_text("no marks")
    with pytest.raises(UserError, match="README must have a line"):
        write_readme_table([FakeEntry()], collect(build), readme)


def test_the_readme_lists_the_catalog() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README yet")
    rest = readme.read_text().partition(MARKS[0])[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", rest.partition(MARKS[1])[0], flags=re.M)
    assert rows == [(entry.top, entry.summary) for entry in CATALOG]
