"""The comparison: what may share a row, a panel and a clock; its figures against other sources."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Shape

from golden.study.kelle_cost import DRAM_GB_S, DRAM_W, SRAM_PJ_A_BYTE
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.p3llm.pim.bank_timing import BankTimingParameters
from hdl.paths import ROOT
from synth import comparison

Rows = dict[tuple[str, str], str]


def cells(data: dict[str, Any]) -> Rows:
    """Return the cells of the table by label and system; a second row of a label has a 2."""
    head, _, *lines = comparison.tables(data)["comparison"].splitlines()
    names = [name.strip() for name in head.split("|")[2:-1]]
    found: Rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        label, *values = (cell.strip().removesuffix(" †") for cell in line.split("|")[1:-1])
        label += " 2" if (label, names[0]) in found else ""
        found |= {(label, name): value for name, value in zip(names, values, strict=True)}
    return found


@pytest.fixture
def data() -> dict[str, Any]:
    return copy.deepcopy(comparison.kept())


def without_place(data: dict[str, Any]) -> None:
    del data["systems"]["p3llm"]["memory"]["where"]


def unknown_place(data: dict[str, Any]) -> None:
    data["systems"]["lad"]["memory"]["where"] = "somewhere"


def unknown_figure(data: dict[str, Any]) -> None:
    data["systems"]["veda"]["figures"]["bytes"] = 1


def unknown_old_figure(data: dict[str, Any]) -> None:
    data["systems"]["kelle"]["old"] = ["edram"]


@pytest.mark.parametrize(
    ("change", "message"),
    (
        (unknown_old_figure, "kelle: old must list figures of the system, not 'edram'"),
        (without_place, "p3llm: memory.where must be 'off-chip' or 'banks', not None"),
        (unknown_place, "lad: memory.where must be 'off-chip' or 'banks', not 'somewhere'"),
        (unknown_figure, "veda: figures must not contain 'bytes'"),
    ),
)
def test_rejects_figures_whose_kind_is_unknown(
    change: Callable[[dict[str, Any]], None], message: str, data: dict[str, Any]
) -> None:
    change(data)
    for use in (comparison.tables, comparison.comparison_plot):
        with pytest.raises(UserError, match=re.escape(message)):
            use(data)


def test_bytes_at_the_banks_are_in_no_off_chip_row(data: dict[str, Any]) -> None:
    found = cells(data)
    others = ("VEDA", "MEADOW", "Kelle", "LAD")
    labels = {label for label, _ in found}
    off_chip = {x for x in labels if x.startswith("off-chip") or x.endswith("paper's bandwidth")}
    at_banks = {x for x in labels if "at the DRAM banks" in x}
    assert (len(off_chip), len(at_banks)) == (6, 3)
    words = {"off-chip bytes/token": r"[\d,]+", "off-chip bytes/cycle, measured": r"\d+"}
    words["off-chip bytes/token, weights unpacked"] = "not packed"
    for label in off_chip:
        # Across the DRAM's channel; the rows of a memory's ports are those of no port of P3-LLM.
        assert re.fullmatch(words.get(label, "its banks"), found[label, "P3-LLM"])
        assert all(re.fullmatch(r"[\d,]+|not packed", found[label, name]) for name in others)
    for label in at_banks:
        assert re.fullmatch(r"[\d,]+", found[label, "P3-LLM"])
        assert all(found[label, name] == "none" for name in others)
    assert found["bytes/token at the DRAM banks (not off-chip)", "P3-LLM"] == "74,416,859"


def test_panels_have_perplexity_and_off_chip_bytes(data: dict[str, Any]) -> None:
    """Cycles, clocks and energies have no panel: their conditions differ."""
    perplexity, moved = comparison.PANELS
    assert list(perplexity.systems(data)) == list(data["systems"])
    systems = moved.systems(data)
    assert list(systems) == ["veda", "meadow", "kelle", "lad", "p3llm"]
    found = {key: moved.series[0][1](system) for key, system in systems.items()}
    bank_bytes = systems["p3llm"]["figures"]["bytes_per_token"]
    assert found["p3llm"] == systems["p3llm"]["figures"]["channel_bytes"] < bank_bytes / 10
    assert found["veda"] == systems["veda"]["figures"]["bytes_per_token"]
    assert all(panel.label.endswith("(lower is better)") for panel in comparison.PANELS)


def test_bytes_per_cycle_are_the_measured_ratio(data: dict[str, Any]) -> None:
    """By figures that were measured from outside the project, except P3-LLM's."""
    found = cells(data)
    measured = {"VEDA": "249", "MEADOW": "48", "Kelle": "123", "LAD": "814"}
    for name, value in measured.items():
        assert found["off-chip bytes/cycle, measured", name] == value
    # 74,416,859 bytes in 681,488 cycles.
    assert found["bytes/cycle at the DRAM banks, measured", "P3-LLM"] == "109"
    bounds = {"Kelle": "2,102,887", "LAD": "1,093,622", "MEADOW": "6,756,835"}
    for name, value in bounds.items():
        assert found["ideal cycles/token at the paper's bandwidth", name] == value


def test_a_clock_at_which_bank_times_are_illegal_is_in_no_cell(data: dict[str, Any]) -> None:
    found = cells(data)
    clocks = "its clock, MHz (default wire load)"
    assert found[clocks, "P3-LLM"] == "none legal"
    assert found[clocks + " 2", "P3-LLM"] == "500"
    (energy,) = {value for (label, name), value in found.items() if "energy of the logic" in label
                 and name == "P3-LLM"}  # fmt: skip
    # 2,042 pJ/cycle, and 49.6 pJ of leakage at 698 MHz; 681,488 cycles at 500 MHz.
    assert energy == f"{(2042.045 + 49.644 * 698.03 / 500) * 681_488e-9:.2f}"
    system = {**data["systems"]["p3llm"]}
    system["figures"] = system["figures"] | {"fastest_mhz": 499.0}
    assert comparison.energy(system) == "none legal"
    assert comparison.netlists(data["systems"]["p3llm"]) == [(1629860.736, 500.0)]
    units = (ROOT / "docs" / "units.md").read_text().splitlines()
    (line,) = [one for one in units if one.startswith("| [`p3llm`]")]
    assert line.endswith("| 1,629,861, [as compared](comparison.md) | 500 | - | 851,000 |")
    # Refreshes are due each 3.9 us in HBM2; columns of a bank group 4 ns apart.
    times, clock = BankTimingParameters(), data["systems"]["p3llm"]["memory"]["clock_mhz"]
    assert times.refi / clock == pytest.approx(3.9) and times.ccd_l / clock == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("clock_mhz", "clocks"),
    [(286, [286.0, 286.0]), (287, [287.0]), (500, [500.0]), (699, []), (1000, [])],
)
def test_the_legal_clock_is_that_of_the_parameters(
    clock_mhz: int, clocks: list[float], data: dict[str, Any]
) -> None:
    """The netlists reach 286.43 and 698.03 MHz."""
    p = entry_named("p3llm").parameters("smollm2")
    timing = replace(p.channel.timing, clock_mhz=clock_mhz)
    p = replace(p, channel=replace(p.channel, timing=timing))
    system = comparison.at_bank_clock(data["systems"]["p3llm"], p)
    assert [clock for _, clock in comparison.netlists(system)] == clocks
    assert comparison.at_bank_clock(data["systems"]["lad"], p) == data["systems"]["lad"]


def test_labels_specify_what_is_excluded() -> None:
    for label, _, _ in comparison.ROWS:
        if re.search("um2|mJ", label):
            assert "SRAM, eDRAM, DRAM" in label and "excluded" in label
        if "MHz" in label:
            assert "default wire load" in label
        if "mJ" in label:
            assert "logic only" in label


def test_port_widths_are_those_of_the_parameters_that_ran() -> None:
    """Bits of VEDA's lines, Kelle's beats, MEADOW's packets, the weights of LAD's vector units."""
    dimensions: dict[str, Any] = {
        top: entry_named(top).dimensions(preset, settings)
        for top, preset, settings in (
            ("veda", "smollm2_vocabulary", {}),
            ("kelle", "smollm2", {"rows": "16", "bands": "8"}),
            ("meadow", "smollm2", {"lanes": "1"}),
            ("lad", "smollm2", {}),
        )
    }
    dimensions = {
        top: entry_named(top).parameters(given) if isinstance(given, str) else given
        for top, given in dimensions.items()
    }
    tile = dimensions["lad"].tile
    bits = {
        "veda": Shape.cast(dimensions["veda"].beat_layout).width,
        "kelle": Shape.cast(dimensions["kelle"].channel_layout).width,
        "meadow": dimensions["meadow"].unpacker.unpacker.packet_bits,
        "lad": tile.linear.units * tile.vector.head_size * 16,
    }
    systems = comparison.kept()["systems"]
    assert {top: systems[top]["memory"]["port_bytes"] * 8 for top in bits} == bits


def test_banks_give_at_most_a_column_of_all_units_in_two_cycles() -> None:
    """Two cycles are tCCD_L; an element of a unit multiplies by four nibbles of a column."""
    p = entry_named("p3llm").parameters("smollm2")
    peak = comparison.kept()["systems"]["p3llm"]["memory"]["port_bytes"]
    assert peak == p.units * p.elements * 4 * 4 / 8 / BankTimingParameters().ccd_l


def test_loss_of_p3llm_on_the_page_is_that_of_the_table(data: dict[str, Any]) -> None:
    perplexity = {
        name: data["systems"][name]["figures"]["perplexity"] for name in ("float32", "p3llm")
    }
    loss = perplexity["p3llm"] - perplexity["float32"]
    page = " ".join(comparison.PAGE.read_text().split())
    assert f"The loss is {loss:.1f} points with this project's choice of scales" in page


def test_excluded_energies_on_the_page_follow_from_the_cost_model(data: dict[str, Any]) -> None:
    moved = data["systems"]["kelle"]["figures"]["bytes_per_token"]
    dram = moved * DRAM_W / (DRAM_GB_S * 1e9) * 1e3
    sram = moved * 2 * SRAM_PJ_A_BYTE * 1e-9
    page = " ".join(comparison.PAGE.read_text().split())
    assert f"take {dram:.1f} mJ in DRAM and {sram:.1f} mJ in SRAM" in page


def test_a_value_that_an_old_figure_decides_has_a_mark(data: dict[str, Any]) -> None:
    data["systems"]["lad"]["old"] = ["bytes_per_token"]
    table = comparison.tables(data)["comparison"]
    marked = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[5] for line in table.splitlines()[:-2]
    }
    assert marked["off-chip bytes/token"] == "279,967,263 †"
    assert marked["off-chip bytes/cycle, measured"] == "814 †"
    assert marked["ideal cycles/token at the paper's bandwidth"] == "1,093,622 †"
    assert marked["multipliers"] == "448"
    assert table.endswith("† A figure of earlier Verilog decides this value.")
