import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from synth.liberty import GENERIC, read_library
from synth.operators import reference
from synth.report import operations_each_cycle, write_report
from synth.results import Record, collect
from synth.synthesis import measure_design
from tests.synth.designs import Counter, emit

COSTS = {
    ours["unit"]: [{"recipe": "plain", "area_um2": 1234.5, "mapper_delay_ps": 678.0}]
    for ours in reference()["ours"]
    if ours["like"] == "softmax"
}


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


def operators(build: Path) -> Record:
    file = build / "operators.json"
    file.write_text(json.dumps({"costs": COSTS}))
    return Record.read(file)


def test_every_figure_is_the_one_in_its_json(build: Path) -> None:
    pages = write_report([FakeEntry()], collect(build), operators(build), build / "report")
    assert [page.name for page in pages] == ["report.html", "report.md"]
    text = pages[1].read_text()
    links = re.findall(r"\[([^\]]+)\]\(([^)]+\.json)\)", text)
    assert links
    for _, link in links:
        assert (build / "report" / link).is_file()
    home = build / "design_under_test" / "tiny"
    synth = json.loads((home / "synth.json").read_text())
    file = f"../design_under_test/tiny/synth/{synth['liberty']}/synth.json"
    figures = [figure for figure, link in links if link == file]
    assert f"{synth['nand2_equivalents']:,.0f}" in figures
    assert f"{synth['memory_bits']:,}" in figures
    assert ("95.7%", "../design_under_test/tiny/sim.json") in links


def test_headlines_are_measured_from_the_units_that_they_name(tmp_path: Path) -> None:
    for top, gates in (("systolic_evictor", 11.0), ("systolic_array", 1000.0)):
        home = tmp_path / top / "paper" / "synth" / "none"
        home.mkdir(parents=True)
        figures = {"top": top, "preset": "paper", "liberty_digest": "x", "memory_bits": 0}
        figures |= {"nand2_equivalents": gates, "liberty": "none"}
        figures["points"] = [{"fmax_mhz": 567.0}, {"fmax_mhz": 1234.0}]
        (home / "synth.json").write_text(json.dumps(figures))
    pages = write_report([], collect(tmp_path), operators(tmp_path), tmp_path / "report")
    page = pages[1].read_text()
    assert "[0.011 (paper)](../systolic_evictor/paper/synth/none/synth.json)" in page
    assert "[1234 (paper)](../systolic_array/paper/synth/none/synth.json)" in page


def test_the_page_is_the_same_in_every_run(build: Path) -> None:
    first = [
        page.read_text()
        for page in write_report([FakeEntry()], collect(build), operators(build), build / "a")
    ]
    second = [
        page.read_text()
        for page in write_report([FakeEntry()], collect(build), operators(build), build / "b")
    ]
    assert first == second


def test_the_page_has_the_peers_and_the_papers(build: Path) -> None:
    html, markdown = (
        page.read_text()
        for page in write_report([FakeEntry()], collect(build), operators(build), build / "report")
    )
    for words in (
        "2.75 % of the area",
        "Kelle's softmax, 8 lanes, plain",
        "ITA softmax",
        "150K LUT",
    ):
        assert words in html and words in markdown
    assert html.count("<svg") >= 1
    for plot in re.findall(r"\]\((\w+\.svg)\)", markdown):
        assert (build / "report" / plot).is_file()


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
