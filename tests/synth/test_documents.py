import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.paths import ROOT
from hdl.target import Target
from synth import comparison
from synth.digests import MARK, SMALLEST, Digest, Form, kept_digests
from synth.documents import PEERS_PLOT, pages, renewed
from synth.figures import (
    FIGURES,
    LIBRARIES,
    PRESET,
    completed,
    figures_text,
    kept_figures,
    merged,
)
from synth.operators import compared_circuits
from synth.plots import all_peers_plot
from synth.results import Measured, Record
from synth.svg import svg

POINT = {"recipe": "area", "nand2_equivalents": 10.0, "power_mw": 1.0}
SMALL, FAST = ({**POINT, "area_um2": a, "fmax_mhz": f} for a, f in ((1000.0, 300.0), (2e6, 900.0)))
SYNTH = {
    "top": "softmax", "preset": "smollm2", "liberty": "osu018_stdcells", "corner": "typical",
    "tools": {}, "verilog_digest": "0", "memory_bits": 64, "flops": 7, "period_ps": None,
    "points": [SMALL, FAST],
}  # fmt: skip

SOFTMAX = "[`softmax`](nonlinear/softmax.md)"

NO_OPERATORS = Record(file=Path("operators.json"))

PRESENT = Digest(verilog="0", parameters="", sources="")
DIGESTS = {
    top: {form.name: PRESENT for form in (SMALLEST, Form(PRESET, Target.ASIC))}
    for top in ("softmax", "rms_norm")
}
"""Digests by which what `measured` returns is of the present Verilog."""


def measured(sim: dict | None = None, mutants: Record | None = None, **synth) -> Measured:
    values = SYNTH | synth
    nothing = Record(file=Path("nothing.json"))
    return Measured(
        top=values["top"],
        preset=values["preset"],
        sim=Record(file=Path("sim.json"), values=sim or {}),
        netlist_sim=nothing,
        fpga=nothing,
        mutants=mutants or nothing,
        synth=(Record(file=Path("synth.json"), values=values),),
    )


def test_the_pages_show_the_figures_that_are_kept() -> None:
    for page, tables in pages(CATALOG, kept_figures(), kept_digests()).items():
        text = page.read_text()
        assert renewed(text, tables, page.name) == text, "run make report DOCS=1"


def test_kept_figures_are_written_as_they_were_read() -> None:
    """A row is a line, so that two branches seldom change the same line."""
    figures = kept_figures()
    text = FIGURES.read_text()
    assert figures_text(figures) == text
    turned = {name: dict(reversed(table.items())) for name, table in reversed(figures.items())}
    assert figures_text(turned) == text
    rows = re.findall(r'^ {2,3}"(.+?)": [{\[].*[}\]],?$', text, re.M)
    operators = figures["operators"]["costs"]
    units = [top for name, table in figures.items() if name != "operators" for top in table]
    assert sorted(rows) == sorted([*units, *operators])


def test_the_comparison_is_of_the_figures_that_are_kept() -> None:
    """The page's tables are held by the test above."""
    data = comparison.kept()
    assert comparison.PLOT.read_text() == comparison.drawing(data), "run make report DOCS=1"
    for system in data["systems"].values():
        assert bool(system["figures"]) == bool(system["commands"])


def test_the_plot_is_of_the_figures_that_are_kept() -> None:
    plot = all_peers_plot(compared_circuits(kept_figures()["operators"]["costs"]))
    written = svg(plot, "Area and delay of circuits that do the same work")
    assert PEERS_PLOT.read_text() == written, "run make report DOCS=1"


def test_a_new_measurement_replaces_the_one_that_was_known() -> None:
    known = merged({}, [measured(), measured(top="rms_norm")], NO_OPERATORS)
    figures = merged(known, [measured(memory_bits=128)], NO_OPERATORS)
    assert figures["osu018"]["softmax"]["memory_bits"] == 128
    assert figures["osu018"]["rms_norm"] == known["osu018"]["rms_norm"]
    written = pages(CATALOG, figures, DIGESTS)
    cells = "| 128 | 7 | 1,000 | 300 | - | 2,000,000 | 900 | - | 1 |"
    docs = ROOT / "docs"
    assert f"| {SOFTMAX} {cells}" in written[docs / "figures.md"]["osu018"].splitlines()


def test_clocks_with_modelled_wires_are_next_to_the_others() -> None:
    wires = {"um_per_load": 7.0, "ohm_per_um": 1.0}
    points = [
        {**SMALL, "wired": {**wires, "fmax_mhz": 250.0}},
        {**FAST, "wired": {**wires, "fmax_mhz": 700.0}},
    ]
    synth = {"liberty": "NangateOpenCellLibrary", "points": points}
    figures = merged({}, [measured(**synth)], NO_OPERATORS)
    stored = [point["wired"] for point in figures["nangate45"]["softmax"]["points"]]
    assert stored == [{"um_per_load": 7.0, "fmax_mhz": clock} for clock in (250.0, 700.0)]
    written, docs = pages(CATALOG, figures, DIGESTS), ROOT / "docs"
    cells = "| 64 | 7 | 1,000 | 300 | 250 | 2,000,000 | 900 | 700 | 1 |"
    assert f"| {SOFTMAX} {cells}" in written[docs / "figures.md"]["nangate45"].splitlines()
    assert "| 300 to 900 | 250 to 700 | 64 |" in written[docs / "units.md"]["units"]


@pytest.mark.parametrize(
    "other",
    (
        {"liberty": "another"},
        {"preset": "tiny"},
        {"period_ps": 1000.0},
        {"points": [SMALL, {**FAST, "fmax_mhz": None}]},
    ),
)
def test_what_the_pages_do_not_show_is_not_kept(other: dict) -> None:
    assert not any(merged({}, [measured(**other)], NO_OPERATORS).values())


SIM = {
    "top": "softmax", "preset": "smollm2", "liberty": "", "simulator": "verilator", "seed": 1,
    "verilog_digest": "0", "tests": 2, "failures": 0, "values_checked": 5, "mismatches": 0,
    "cycles": 12, "ideal_cycles": 9, "utilization": 0.75, "tensors": "none", "passed": True,
}  # fmt: skip


def test_a_simulation_is_kept_if_it_passed() -> None:
    figures = merged({}, [measured(sim=SIM)], NO_OPERATORS)
    assert figures["simulations"]["softmax"]["utilization"] == 0.75
    assert merged(figures, [measured(sim=SIM | {"passed": False})], NO_OPERATORS) == figures


def test_a_score_of_mutants_is_one_row_of_the_figures() -> None:
    found = {"killed": 36, "timed out": 1, "by its operator's trial": 3}
    outcomes = found | {"survived": 2, "equal": 8}
    mutants = {"top": "softmax", "preset": "tiny", "seed": 3, "verilog_digest": "0"}
    record = Record(
        file=Path("mutate.json"), values=mutants | {"outcomes": outcomes, "mutants": []}
    )
    figures = merged({}, [measured(preset="tiny", mutants=record)], NO_OPERATORS)
    assert figures["mutants"]["softmax"]["outcomes"] == outcomes
    written = pages(CATALOG, figures, DIGESTS)
    rows = written[ROOT / "docs" / "figures.md"]["mutants"].splitlines()
    assert rows[2:] == [f"| {SOFTMAX} | tiny | 3 | 50 | 36 | 1 | 3 | 8 | 2 | 95.2 % |"]


def test_built_results_have_priority_over_stored_ones() -> None:
    kept = merged({}, [measured(sim=SIM), measured(sim=SIM, top="sfu")], NO_OPERATORS)
    built = measured(sim=SIM | {"utilization": 0.5}, memory_bits=128)
    sfu, softmax = completed([built], kept)
    assert softmax == built
    assert sfu.sim.kept and sfu.sim.file == FIGURES and sfu.sim.values["utilization"] == 0.75
    assert [record.kept for record in sfu.synth] == [True]
    (only,) = completed([measured(liberty="another")], merged({}, [measured()], NO_OPERATORS))
    assert [(r.values["liberty"], r.kept) for r in only.synth] == [
        ("another", False),
        ("osu018_stdcells", True),
    ]


def test_a_page_without_marks_is_refused() -> None:
    tables = pages(CATALOG, merged({}, [], NO_OPERATORS), DIGESTS)[ROOT / "docs" / "units.md"]
    with pytest.raises(UserError, match=r"PAGE\.md must have a line '<!-- units"):
        renewed("no marks", tables, "PAGE.md")
    marks = "<!-- units: written by `make report DOCS=1` -->", "<!-- end of units -->"
    text = renewed(f"a\n{marks[0]}\nold\n{marks[1]}\nb\n", tables, "PAGE.md")
    assert text.startswith(f"a\n{marks[0]}\n**") and text.endswith(f"|\n{marks[1]}\nb\n")
    # Without a measurement of its own a system has the figures of the comparison.
    compared = [entry for entry in CATALOG if entry.top in comparison.kept()["systems"]]
    assert len(compared) == 5 and text.count("as compared") == len(compared)
    assert "\nold\n" not in text
    assert text.count("not measured") == len(CATALOG) - len(compared)
    # A table a paper, whose title leads to its page.
    shown = re.findall(r"^\*\*\[.*\]\((\w+)/README\.md\)\*\*$", text, flags=re.M)
    assert shown == list(dict.fromkeys(e.paper for e in CATALOG if e.paper != "nonlinear"))


def test_figure_of_other_verilog_is_marked() -> None:
    """The mark is there exactly where the digest differs, and its table has a legend."""
    known = [measured(), measured(top="rms_norm")]
    figures = merged({}, known, NO_OPERATORS)
    changed = DIGESTS["softmax"] | {f"{PRESET} asic": replace(PRESENT, verilog="1")}
    docs = ROOT / "docs"
    for digests, marked in (
        (DIGESTS, set()),
        (DIGESTS | {"softmax": changed}, {"softmax"}),
        ({"rms_norm": DIGESTS["rms_norm"]}, {"softmax"}),
    ):
        written = pages(CATALOG, figures, digests)
        rows = written[docs / "figures.md"]["osu018"].splitlines()
        for top in ("softmax", "rms_norm"):
            mark = f" {MARK}" * (top in marked)
            linked = f"[`{top}`](nonlinear/{top}.md)"
            assert any(row.startswith(f"| {linked}{mark} | 64 |") for row in rows)
        legend = f"{MARK} The unit's Verilog has changed since this was measured: 1 of 2 rows."
        assert rows[-1] == legend if marked else MARK not in "".join(rows)


def test_every_kept_figure_is_marked_or_of_the_present_verilog() -> None:
    """Counted apart from the tables: marks in the overview are figures with another digest."""
    figures, digests = kept_figures(), kept_digests()
    text = (ROOT / "docs" / "figures.md").read_text()
    for table in LIBRARIES:
        rows = text.split(f"<!-- {table}: ")[1].split(f"<!-- end of {table} -->")[0]
        marked = set(re.findall(rf"^\| \[`(\w+)`\]\(\S+\) {MARK} \|", rows, re.M))
        form = f"{PRESET} asic"
        present = {top: forms[form].verilog for top, forms in digests.items() if form in forms}
        assert marked == {
            top for top, own in figures[table].items() if own["verilog_digest"] != present[top]
        }


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_page_of_a_unit_leads_to_its_figures(entry: Entry) -> None:
    page = ROOT / entry.files["docs"]
    assert f"({os.path.relpath(ROOT / 'docs' / 'figures.md', page.parent)})" in page.read_text()


def test_netlists_were_compared_and_equal() -> None:
    for netlist in kept_figures()["netlists"].values():
        assert netlist["values_checked"] and not netlist["failures"] and not netlist["mismatches"]
