import re
import signal
import subprocess
from pathlib import Path

import pytest

from synth.asic import elaborate, map_to_cells
from synth.debian import Program, opensta, osu018
from synth.flat_netlist import FlatNetlist
from synth.liberty import find_library, read_library
from synth.mapped_design import Netlist
from synth.replay import Activity, PinActivity, activity_of
from synth.synthesis import measure_design
from synth.timing import analyse
from synth.waveforms import read_waveforms
from tests.synth.designs import Chosen, Counter, Pair, emit
from tests.synth.test_waveforms import write_vcd

TOP = "design_under_test"
OSU = osu018(fetch=False)

needs_tools = pytest.mark.skipif(
    opensta(fetch=False) is None or OSU is None, reason="needs OpenSTA and OSU018"
)


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    assert OSU is not None
    directory = tmp_path_factory.mktemp("counter")
    files = emit(Counter(width=8, memory=True), directory / "rtl")
    library = read_library(OSU, origin="Debian")
    return map_to_cells(elaborate(files, TOP, directory / "synth"), library)


@needs_tools
def test_the_longest_path_is_named_after_the_source(netlist: Netlist) -> None:
    timing = analyse(netlist)
    assert timing is not None and timing.critical is not None and timing.fmax_mhz is not None
    assert {path.kind for path in timing.paths} >= {"register_to_register", "input_to_register"}
    assert timing.fmax_mhz == pytest.approx(1e6 / max(path.length_ps for path in timing.paths))
    assert timing.power is not None and timing.power.total_mw > 0
    path = next(path for path in timing.paths if path.kind == "register_to_register")
    assert re.fullmatch(r"count\[\d\]", path.steps[0].name)
    assert path.length_ps > path.steps[-1].time_ps > 0
    delays = [step.delay_ps for step in path.steps]
    assert sum(delays) == pytest.approx(path.steps[-1].time_ps, abs=0.1)


@needs_tools
def test_a_path_through_modules_names_them(tmp_path: Path) -> None:
    assert OSU is not None
    files = emit(Pair(width=8), tmp_path / "rtl")
    library = read_library(OSU, origin="Debian")
    lengths = {}
    for flatten in (False, True):
        design = elaborate(files, TOP, tmp_path / "synth", flatten=flatten)
        timing = analyse(map_to_cells(design, library))
        assert timing is not None
        path = next(path for path in timing.paths if path.kind == "register_to_register")
        lengths[flatten] = path.length_ps
        assert re.fullmatch(r"U\.result\[\d\]", path.steps[0].name)
        assert "/" not in path.steps[-1].name and "result" in path.steps[-1].name
        assert not any(step.name for step in path.steps[2:-1])
    # The same adder between the same registers, mapped by itself or with its neighbour.
    assert lengths[False] == pytest.approx(lengths[True], rel=0.1)


@needs_tools
def test_paths_do_not_depend_on_period_or_neighbours(netlist: Netlist) -> None:
    alone = analyse(netlist, period_ps=20000)
    among = analyse(netlist, period_ps=10000, external=0.25)
    assert alone is not None and among is not None
    for path, same in zip(alone.paths, among.paths, strict=True):
        assert path.length_ps == pytest.approx(same.length_ps, abs=0.1)
        ports = path.kind.count("input_") + path.kind.count("_output")
        assert same.slack_ps == pytest.approx(10000 - path.length_ps - 2500 * ports, abs=0.1)


@needs_tools
def test_power_at_the_maximum_frequency_equals_opensta(netlist: Netlist) -> None:
    fastest = analyse(netlist)
    assert fastest is not None and fastest.critical is not None and fastest.power is not None
    there = analyse(netlist, period_ps=fastest.critical.length_ps)
    assert there is not None and there.power is not None
    assert fastest.power.total_mw == pytest.approx(there.power.total_mw, rel=1e-4)
    assert fastest.power.frequency_mhz == pytest.approx(there.power.frequency_mhz)


@needs_tools
def test_power_follows_the_simulated_activity(netlist: Netlist, tmp_path: Path) -> None:
    quiet, busy = tmp_path / "quiet.vcd", tmp_path / "busy.vcd"
    write_vcd(quiet, counts=[0] * 40)
    write_vcd(busy, counts=[0, 255] * 20)
    power = {}
    for file in (quiet, busy):
        activity = activity_of(read_waveforms(file, TOP), netlist)
        assert activity.cycles == 40
        timing = analyse(netlist, period_ps=5000, activity=activity)
        assert timing is not None and timing.power is not None
        assert timing.activity.startswith("40 simulated cycles")
        power[file.stem] = timing.power.total_mw
    assert power["busy"] > power["quiet"]


@needs_tools
@pytest.mark.parametrize("flatten", [False, True])
def test_power_grows_with_the_transitions_of_every_pin(flatten: bool, tmp_path: Path) -> None:
    """What switching takes is none without transitions, and twice as much with twice as many."""
    assert OSU is not None
    files = emit(Pair(width=8), tmp_path / "rtl")
    design = elaborate(files, TOP, tmp_path / "synth", flatten=flatten)
    netlist = map_to_cells(design, read_library(OSU, origin="Debian"))
    dynamic: list[float] = []
    for transitions in (0.0, 0.1, 0.2):
        pin = PinActivity(transitions=transitions, ones=0.5)
        flat = FlatNetlist.read(netlist)
        pins = {f"{cell.path}/{name}": pin for cell in flat.cells for name in cell.nets}
        pins |= {name: pin for name in flat.ports if name != "clk"}
        activity = Activity(pins=pins, cycles=1, replayed=1.0)
        timing = analyse(netlist, period_ps=5000, activity=activity)
        assert timing is not None and timing.power is not None
        dynamic.append(timing.power.dynamic_mw)
    assert dynamic[2] - dynamic[0] == pytest.approx(2 * (dynamic[1] - dynamic[0]), rel=1e-3)
    assert dynamic[1] > 1.05 * dynamic[0]


@needs_tools
def test_period_is_satisfied_or_shortfall_is_reported(tmp_path: Path) -> None:
    assert OSU is not None
    library = read_library(OSU, origin="Debian")
    files = emit(Counter(width=8), tmp_path / "rtl")
    slacks = {}
    for period in (10000.0, 100.0):
        result = measure_design(files, TOP, library, tmp_path / f"{period:.0f}", period_ps=period)
        timing = result.headline.timing
        assert timing is not None
        slacks[period] = min(path.slack_ps for path in timing.paths)
    assert slacks[10000.0] >= 0 > slacks[100.0]


def test_wires_have_no_highest_frequency(tmp_path: Path) -> None:
    source = tmp_path / "wires.v"
    source.write_text(
        "module wires(input clk, input [3:0] d, output [3:0] q);\n"
        "assign q = {d[0], d[3:1]}; endmodule\n"
    )
    result = measure_design([source], "wires", find_library(), tmp_path)
    assert result.headline.netlist.area_um2 == 0
    assert not result.headline.timing or not result.headline.timing.paths
    assert '"fmax_mhz": null' in result.file.read_text()


def test_without_opensta_there_is_area_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.timing.opensta", lambda: None)
    files = emit(Counter(width=4), tmp_path / "rtl")
    result = measure_design(files, TOP, find_library(), tmp_path)
    assert result.headline.timing is None
    assert result.headline.netlist.area_um2 > 0
    assert '"fmax_mhz": null' in result.file.read_text()


class _Stopping(Program):
    """An OpenSTA that crashes in its power report if a library has constant cells, like 2.0.17."""

    returncode, last_words = -signal.SIGSEGV, ""

    def run(self, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
        result = super().run(*arguments, directory=directory)
        commands = (directory / arguments[-1]).read_text()
        libraries = re.findall(r"\{(/[^}]+\.lib)\}", commands)
        if not any(re.search(r'function\s*:\s*"[01]"', Path(lib).read_text()) for lib in libraries):
            return result
        result.returncode = self.returncode
        paths, power = result.stdout.split("@@ power\n")
        result.stdout = f"{paths}@@ power\n{power.split('Total')[0]}{self.last_words}"
        return result


class _Numberless(_Stopping):
    """An OpenSTA that finds no number for a cell's power there."""

    returncode, last_words = 0, "Error: can't use non-numeric floating-point value\n@@ end\n"


@needs_tools
@pytest.mark.parametrize("stopping", [_Stopping, _Numberless])
def test_power_is_reported_if_opensta_crashes_at_constants(
    tmp_path: Path, stopping: type[_Stopping]
) -> None:
    """Constants that are hidden from OpenSTA change neither paths nor given activities."""
    assert OSU is not None
    installed = opensta(fetch=False)
    assert installed is not None
    program = stopping(path=installed.path, environment=installed.environment)
    files = emit(Chosen(), tmp_path / "rtl")
    library = read_library(OSU, origin="Debian")
    design = elaborate(files, TOP, tmp_path / "synth", flatten=False)
    netlist = map_to_cells(design, library)
    assert "constant_one" in (netlist.directory / f"{netlist.stem}.sta.v").read_text()
    write_vcd(tmp_path / "counts.vcd", counts=[0, 255, 17, 18, 128] * 8)
    simulated = activity_of(read_waveforms(tmp_path / "counts.vcd", TOP), netlist)
    for activity in (None, simulated):
        known = analyse(netlist, period_ps=5000, activity=activity)
        hidden = analyse(netlist, period_ps=5000, activity=activity, program=program)
        assert known is not None and hidden is not None
        assert hidden.paths == known.paths and len(known.paths) >= 3
        assert hidden.power is not None and known.power is not None
        assert hidden.power.leakage_mw == known.power.leakage_mw
        # The activities of pins are equal; pins downstream of a constant have slopes now.
        # Propagated activities differ, because OpenSTA treats a constant one as a zero.
        tolerance = 2e-3 if activity else 0.1
        assert hidden.power.dynamic_mw == pytest.approx(known.power.dynamic_mw, rel=tolerance)
