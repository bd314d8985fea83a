"""Every preset of every unit, simulated on real tensors against its golden model."""

import json
import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pywellen

from hdl.catalog import CATALOG, entry_named
from hdl.emit import Emission, write_verilog
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.paths import BUILD
from hdl.target import Target
from synth.debian import compression, icarus
from testbenches import runner, simulators
from testbenches.lint import lint_modules
from testbenches.ports import difference, kept_ports, listed
from testbenches.quick_form import COMPOSED, quick_form
from testbenches.runner import Request, run_testbench, simulate
from testbenches.verilated import Model
from tests.cases import CASES
from tests.verilog_rules import broken_rules


def changed_ports(verilog: str, entry: Entry, preset: str) -> str:
    """Compare the ports of a file's top module with the recorded ones."""
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);$", verilog, re.M)
    present = listed((direction, int(last or 0) + 1, name) for direction, last, name in found)
    return difference(kept_ports()[f"{entry.top} {preset}"], present)


@pytest.mark.parametrize(("entry", "preset"), CASES)
def test_unit_equals_its_golden_model(entry: Entry, preset: str) -> None:
    """The FPGA form compiles in half the time.

    `test_no_bit_is_undefined_after_a_reset_in_four_states` simulates the gates of the other form.
    """
    request = Request(seed=20260, full=False, lint=True, target=Target.FPGA)
    result = simulate(entry, preset, request)
    assert result.passed, result.first_failure
    assert result.values_checked > 0
    assert result.mismatches == 0
    written = json.loads((BUILD / entry.top / preset / f"{request.result_name}.json").read_text())
    assert written["passed"] and written["tests"] == result.tests


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_modules_of_every_preset_and_form_are_clean_and_ports_are_recorded(
    entry: Entry, tmp_path: Path
) -> None:
    """One test emits all presets of a unit, because they have most modules in common."""
    linted = set[str]()
    for preset in entry.presets:
        for target in Target:
            where = f"{preset}, {target}"
            emission = Emission(top=entry.build(preset), name=entry.top, target=target)
            files = write_verilog(emission, tmp_path / f"{preset}_{target}")[:-1]
            message = lint_modules(files)
            assert not message, f"{where}: {message}"
            for file in files:
                text = file.read_text()
                if text not in linted:
                    assert not [*broken_rules(text)], f"{where}, {file.name}"
                    linted.add(text)
            ports = changed_ports(files[-1].read_text(), entry, preset)
            assert not ports, f"{where}: {ports}: see python -m testbenches.ports"


def units(short: Collection[str]) -> list[Any]:
    """Return all units without parts in the catalog; those that are not short have the mark `full`.

    A composed unit adds connections and control to its parts, which are the same in every form.
    """
    return [
        pytest.param(entry, id=entry.top, marks=[] if entry.top in short else [pytest.mark.full])
        for entry in CATALOG
        if entry.top not in COMPOSED
    ]


@pytest.mark.full
@pytest.mark.parametrize("entry", units(()))
def test_standard_cell_form_equals_its_golden_model(entry: Entry) -> None:
    for preset in (name for name in entry.presets if name.startswith("tiny")):
        result = simulate(entry, preset, Request(seed=20260, lint=True))
        assert result.passed, f"{preset}: {result.first_failure}"
        assert result.values_checked > 0


@pytest.mark.full
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_random_seeds_pass(entry: Entry) -> None:
    """The result of a run, ``sim.json``, contains the seed."""
    for _ in range(2):
        result = simulate(entry, "tiny", Request(target=Target.FPGA))
        assert result.passed, f"SEED={result.seed}: {result.first_failure}"


needs_icarus = pytest.mark.skipif(not icarus(fetch=False), reason="needs Icarus Verilog")


@needs_icarus
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.top, marks=[pytest.mark.full] if entry.top in COMPOSED else [])
        for entry in CATALOG
    ],
)
def test_no_bit_is_undefined_after_a_reset_in_four_states(entry: Entry) -> None:
    """Verilator, which has two states, starts with random values instead of undefined ones."""
    request = Request(
        seed=1, simulator="icarus", only="resets", target=quick_form(entry.top, "tiny")
    )
    result = simulate(entry, "tiny", request)
    assert result.passed, result.first_failure
    assert result.values_checked > 0


@needs_icarus
@pytest.mark.full
@pytest.mark.parametrize("entry", units(()))
def test_unit_equals_its_golden_model_in_four_states(entry: Entry) -> None:
    result = simulate(entry, "tiny", Request(seed=1, simulator="icarus"))
    assert result.passed, result.first_failure


@pytest.mark.parametrize("entry", units(("systolic_evictor",)))
def test_netlist_equals_the_golden_model(entry: Entry) -> None:
    result = simulate(entry, "tiny", Request(seed=1, netlist=True))
    assert result.passed, result.first_failure
    assert result.values_checked > 0


def broken_run(home: Path, testbench: str) -> None:
    entry = entry_named("systolic_evictor")
    emission = Emission(top=entry.build("tiny"), name=entry.top)
    files = write_verilog(emission, home / "rtl")[:-1]
    run_testbench(
        top=entry.top,
        preset="tiny",
        parameters=entry.parameters("tiny"),
        testbench=testbench,
        ports=emission.modules[-1].ports,
        verilog=files,
        home=home,
        request=Request(seed=1),
    )


def test_a_run_without_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no test ran|no results"):
        broken_run(tmp_path, "testbenches.kelle.eviction.evictor_wavefronts")


def test_a_testbench_that_cannot_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no results|no test ran"):
        broken_run(tmp_path, "testbenches.kelle.tb_of_nothing")


def test_coverage_needs_verilator() -> None:
    with pytest.raises(ValueError, match="COVERAGE=1 needs SIM=verilator, not 'icarus'"):
        Request(simulator="icarus", coverage=True)


@pytest.fixture
def no_designs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulators that have compiled no design yet, and all that is the same in each."""
    (tmp_path / "simulators").mkdir()
    for runtime in (BUILD / "simulators").glob("runtime-*"):
        (tmp_path / "simulators" / runtime.name).symlink_to(runtime)
    monkeypatch.setattr("testbenches.simulators.BUILD", tmp_path)


@pytest.mark.usefixtures("no_designs")
def test_a_warning_ends_a_run_that_is_linted(tmp_path: Path) -> None:
    verilog = tmp_path / "top.v"
    verilog.write_text("module top(input clk, output undriven);\nendmodule\n")
    with pytest.raises(UserError, match="verilator rejected the design"):
        simulators.build(
            simulator="verilator",
            top="top",
            ports=(),
            verilog=[verilog],
            waves=False,
            coverage=False,
            lint=True,
        )
    (log,) = (tmp_path / "simulators").glob("*.log")
    assert "UNDRIVEN" in log.read_text()


@pytest.mark.usefixtures("no_designs")
def test_who_waits_for_a_compilation_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verilog = tmp_path / "top.v"
    verilog.write_text("module top(input clk, output out);\nassign out = clk;\nendmodule\n")

    def build() -> Path:
        return simulators.build(
            simulator="verilator", top="top", ports=(), verilog=[verilog], waves=False,
            coverage=False,
        )[1]  # fmt: skip

    compiled = []
    own = Model.compile
    monkeypatch.setattr(Model, "compile", lambda *args: compiled.append(own(*args)))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build(), range(2))
    assert first == second and (first / "top").exists()
    assert len(compiled) == 1


def test_simulation_keeps_the_netlist_of_synth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is mapped or compiled; the folder of the mapped sources is that of no other verb."""
    folders: list[Path] = []

    def mapped(verilog: Any, top: str, library: Any, directory: Path) -> list[Path]:
        folders.append(directory)
        return []

    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(runner, "find_library", lambda liberty: SimpleNamespace(name="cells"))
    monkeypatch.setattr(runner, "mapped_sources", mapped)
    monkeypatch.setattr(runner, "run_testbench", lambda **given: given)
    found: Any = simulate(entry_named("argmax"), "tiny", Request(netlist=True))
    assert folders == [tmp_path / "argmax/tiny/simulated_netlist"]
    assert found["verilog"] == [] and found["liberty"] == "cells"


@pytest.mark.parametrize("other", [{"simulator": "icarus"}, {"netlist": True}])
def test_lint_is_of_rtl_in_verilator(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lint must be of RTL in Verilator"):
        Request(lint=True, **other)


def test_a_netlist_of_cells_is_not_for_an_fpga() -> None:
    with pytest.raises(ValueError, match="NETLIST=1 needs TARGET=asic, not 'fpga'"):
        Request(netlist=True, target=Target.FPGA)


def test_unknown_simulator_is_refused() -> None:
    with pytest.raises(ValueError, match="SIM must be one of 'verilator', 'icarus', not 'vcs'"):
        Request(simulator="vcs")


@pytest.fixture
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that no other test replaces while this one reads them."""
    monkeypatch.setattr("testbenches.runner.BUILD", tmp_path)


@pytest.mark.usefixtures("own_results")
def test_waveform_view_and_coverage_report_are_written() -> None:
    entry = entry_named("systolic_evictor")
    result = simulate(entry, "tiny", Request(seed=1, waves=True, coverage=True))
    written = {Path(file).name: Path(file) for file in result.outputs}
    view = written["systolic_evictor.gtkw"].read_text()
    assert '[dumpfile] "dump.vcd"' in view
    assert "-victims" in view and "-row_0" in view
    report = written["coverage.md"].read_text()
    (row,) = [line for line in report.splitlines() if line.startswith("| evictor_row")]
    assert row.split("|")[2].strip().endswith("(100.0 %)")
    (row,) = [line for line in report.splitlines() if line.startswith("| victims |")]
    assert row.split("|")[2].strip().endswith("(100.0 %)")
    hit, _of, bins, *_share = result.facts["functional coverage"].split()
    assert 10 < int(hit) <= int(bins)


@pytest.mark.usefixtures("own_results")
@needs_icarus
def test_four_state_simulator_writes_a_waveform() -> None:
    entry = entry_named("refresh_controller")
    # The waveform is all that is checked, so one short test is enough.
    request = Request(seed=1, simulator="icarus", waves=True, only="any_intervals")
    for _build_is_cached in (False, True):
        result = simulate(entry, "tiny", request)
        written = {Path(file).name: Path(file) for file in result.outputs}
        assert written["dump.fst"].stat().st_size > 10_000
        assert '[dumpfile] "dump.fst"' in written["refresh_controller.gtkw"].read_text()


def changes_of(file: str, top: str) -> dict[str, list[Any]]:
    """Return the times and values of each variable of a design, by another project's reader."""
    waveform = pywellen.Waveform(file)  # pyright: ignore[reportAttributeAccessIssue]
    found = {}
    for variable in waveform.all_vars():
        scope, _, name = variable.full_name.partition(f"{top}.")
        if name and scope in ("", "TOP."):
            signal = variable.signal
            # FST has the one bit of a word as an index.
            name = re.sub(r"(\.\[\d+\])\[0\]$", r"\1", name)
            found[name] = [signal[number] for number in range(len(signal))]
    return found


@pytest.mark.usefixtures("own_results")
@pytest.mark.skipif(not compression(fetch=False), reason="needs the headers of LZ4 and zlib")
def test_waveforms_of_both_formats_have_the_same_changes() -> None:
    entry = entry_named("refresh_controller")
    found, sizes = [], []
    for fst, form in ((False, "vcd"), (True, "fst")):
        request = Request(seed=1, waves=True, fst=fst, only="any_intervals")
        written = {Path(file).name: file for file in simulate(entry, "tiny", request).outputs}
        found.append(changes_of(written[f"dump.{form}"], entry.top))
        sizes.append(Path(written[f"dump.{form}"]).stat().st_size)
    assert found[0] == found[1]
    assert len(found[1]) > 100 and len(found[1]["clk"]) > 1000
    assert sizes[1] < sizes[0] / 4


def test_a_seed_repeats_a_run() -> None:
    entry = entry_named("systolic_evictor")
    first, second = (simulate(entry, "tiny", Request(seed=7)) for _ in range(2))
    assert (first.values_checked, first.cycles) == (second.values_checked, second.cycles)


def test_runs_of_one_unit_wait_for_each_other() -> None:
    entry = entry_named("systolic_evictor")

    def run(seed: int) -> tuple[bool, int, int]:
        result = simulate(entry, "tiny", Request(seed=seed))
        return result.passed, result.values_checked, result.cycles

    alone = [run(seed) for seed in (7, 8)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (7, 8))) == alone
    assert alone[0][0] and alone[0] != alone[1]
