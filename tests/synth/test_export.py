import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hdl.emit import Emission, write_verilog
from hdl.errors import UserError
from hdl.yosys import run_yosys
from synth.export import EXPORTS, Design, write_export
from tests.synth.designs import Doubler, Pair

VIVADO_COMMANDS = {
    "read_verilog", "read_xdc", "synth_design", "report_utilization", "report_timing_summary",
    "write_checkpoint", "create_project", "add_files", "set_property", "update_compile_order",
    "ipx::package_project", "ipx::create_xgui_files", "ipx::update_checksums",
    "ipx::check_integrity", "ipx::save_core", "ipx::current_core", "current_fileset",
}  # fmt: skip


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Design:
    emission = Emission(top=Doubler(), name="doubler")
    files = write_verilog(emission, tmp_path_factory.mktemp("doubler") / "rtl")
    return Design(
        top="doubler",
        summary='doubles "each" value',
        verilog=tuple(files),
        ports=emission.modules[-1].ports,
        period_ps=4000,
    )


@pytest.mark.parametrize("for_", EXPORTS)
def test_every_export_stands_by_itself(for_: str, design: Design, tmp_path: Path) -> None:
    directory = tmp_path / for_
    files = write_export(design, for_, directory)
    assert all(file.is_file() for file in files)
    readme = (directory / "README.md").read_text()
    assert readme.count("```") == 2
    assert "not run" in readme or for_ == "fusesoc"
    for file in files:
        text = file.read_text()
        assert "{top}" not in text and str(tmp_path) not in text
    listed = set(re.findall(r"\w+\.v\b", "".join(f.read_text() for f in files if f.suffix != ".v")))
    assert listed == {path.name for path in (directory / "rtl").iterdir()}
    again = write_export(design, for_, directory)
    assert files == again


def test_orfs_lists_files_where_make_finds_them(design: Design, tmp_path: Path) -> None:
    write_export(design, "orfs", tmp_path / "orfs")
    makefile = tmp_path / "Makefile"
    makefile.write_text("include $(DESIGN_CONFIG)\nall: ; @echo $(VERILOG_FILES) $(SDC_FILE)\n")
    shown = subprocess.run(
        ["make", "-s", "-f", makefile, "DESIGN_CONFIG=orfs/config.mk"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(word) for word in shown.stdout.split()]
    assert {path.name for path in paths} == {"doubler.v", "doubler.sdc"}
    assert all(path.is_file() for path in paths)


def test_librelane_reads_its_configuration(design: Design, tmp_path: Path) -> None:
    write_export(design, "librelane", tmp_path)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["meta"] == {"version": 2, "flow": "Classic"}
    assert (config["DESIGN_NAME"], config["CLOCK_PORT"]) == ("doubler", "clk")
    assert config["CLOCK_PERIOD"] == 4
    for name in [*config["VERILOG_FILES"], config["PNR_SDC_FILE"], config["SIGNOFF_SDC_FILE"]]:
        assert (tmp_path / name.removeprefix("dir::")).is_file()


@pytest.mark.parametrize("script", ["synth.tcl", "package.tcl"])
def test_vivado_scripts_run_with_vivados_commands_played(
    script: str, design: Design, tmp_path: Path
) -> None:
    """The Tcl runs in Python's interpreter; every command it asks of Vivado is a known one."""
    tkinter = pytest.importorskip("tkinter")
    write_export(design, "vivado", tmp_path)
    tcl = tkinter.Tcl()
    calls: list[tuple[str, ...]] = []
    tcl.createcommand("vivado", lambda *words: calls.append(words) or "object")
    tcl.eval("namespace eval ipx {}")
    for command in VIVADO_COMMANDS:
        tcl.eval(f"proc {command} {{args}} {{ vivado {command} {{*}}$args }}")
    tcl.eval("set argv {}")
    tcl.eval(f"source {{{tmp_path / script}}}")
    read = [Path(word) for words in calls for word in words if word.endswith((".v", ".xdc"))]
    assert read and all(path.is_file() for path in read)
    names = [words[0] for words in calls]
    assert ("synth_design" if script == "synth.tcl" else "ipx::save_core") in names


def test_vivado_constraints_are_tcl(design: Design, tmp_path: Path) -> None:
    write_export(design, "vivado", tmp_path)
    lines = (tmp_path / "doubler.xdc").read_text().splitlines()
    assert "create_clock -name clk -period 4 [get_ports clk]" in lines
    assert "set_false_path -from [get_ports rst]" in lines


def test_fusesoc_reads_the_core(design: Design, tmp_path: Path) -> None:
    write_export(design, "fusesoc", tmp_path / "core")
    shown = subprocess.run(
        [sys.executable, "-m", "fusesoc.main", "--cores-root", "core", "core", "show",
         "systola:llm:doubler"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert 'doubles "each" value' in shown.stdout
    for target in ("default", "lint", "axis"):
        assert target in shown.stdout


def test_the_exported_wrapper_elaborates(design: Design, tmp_path: Path) -> None:
    write_export(design, "vivado", tmp_path)
    names = [path.name for path in (tmp_path / "rtl").iterdir()]
    passes = [*(f"read_verilog {name}" for name in names), "hierarchy -check -top doubler_axis"]
    run_yosys([*passes, "proc", "check -assert"], directory=tmp_path / "rtl")


def test_bad_requests_are_refused(design: Design, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FOR must be one of orfs, librelane, vivado, fusesoc"):
        write_export(design, "quartus", tmp_path / "out")
    without_clock = Design(top="x", summary="", verilog=(), ports=())
    with pytest.raises(UserError, match="TOP must have a clock"):
        write_export(without_clock, "orfs", tmp_path / "out")
    with pytest.raises(UserError, match="PERIOD must be a positive number"):
        Design(top="x", summary="", verilog=(), ports=(), period_ps=0)
    assert not (tmp_path / "out").exists()


def test_a_unit_without_streams_is_exported_as_it_is(tmp_path: Path) -> None:
    emission = Emission(top=Pair(), name="pair")
    files = write_verilog(emission, tmp_path / "rtl")
    design = Design(top="pair", summary="", verilog=tuple(files), ports=emission.modules[-1].ports)
    write_export(design, "vivado", tmp_path / "vivado")
    assert not list((tmp_path / "vivado").rglob("*_axis.v"))
    assert "set_property top pair " in (tmp_path / "vivado" / "package.tcl").read_text()
