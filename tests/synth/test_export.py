import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hdl import __version__
from hdl.emit import Emission, write_verilog
from hdl.errors import UserError
from hdl.unit import Unit
from hdl.yosys import run_yosys
from synth.debian import opensta
from synth.export import EXPORTS, Design, large_memories, write_export
from testbenches.lint import lint_files
from tests.synth.designs import Counter, Doubler, Pair

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
def test_every_export_is_self_contained(for_: str, design: Design, tmp_path: Path) -> None:
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


FLOW = """
include $(DESIGN_CONFIG)
all: ; @echo files $(VERILOG_FILES) $(SDC_FILE) $(ABC_CLOCK_PERIOD_IN_PS)
"""
"""Reads a configuration as OpenROAD-flow-scripts' own makefile does, from its own folder."""


def command_of(directory: Path) -> str:
    """Return the command in an export's README."""
    (command,) = re.findall(r"^```\n(.*)\n```$", (directory / "README.md").read_text(), re.M)
    return command


def test_the_command_for_orfs_finds_all_files(design: Design, tmp_path: Path) -> None:
    directory = tmp_path / "exported"
    write_export(design, "orfs", directory)
    flow = tmp_path / "scripts" / "flow"
    flow.mkdir(parents=True)
    (flow / "Makefile").write_text(FLOW)
    command = command_of(directory).replace("<OpenROAD-flow-scripts>", str(flow.parent))
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    shown = subprocess.run(
        command, shell=True, cwd=directory, env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("files ")]
    *paths, period = line.split()[1:]
    assert {Path(path).name for path in paths} == {"doubler.v", "doubler.sdc"}
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in paths)
    # The flow takes this number for ABC, and no other from the constraints.
    assert float(period) == design.period_ps


def test_commands_name_files_of_the_export(design: Design, tmp_path: Path) -> None:
    for for_ in EXPORTS:
        directory = tmp_path / for_
        write_export(design, for_, directory)
        command = command_of(directory).replace('"$PWD/config.mk"', "config.mk")
        files = re.findall(r"[\w.]+\.(?:mk|yaml|tcl)\b", command)
        assert len(files) == (for_ not in ("fusesoc", "litex"))
        assert all((directory / file).is_file() for file in files)


LIBRARY = """
library(small) {{
  delay_model : table_lookup;
  time_unit : "1{time}s";
  capacitive_load_unit (1, {capacitance}f);
  voltage_unit : "1V"; current_unit : "1mA"; leakage_power_unit : "1nW";
  pulling_resistance_unit : "1kohm";
  slew_lower_threshold_pct_rise : 20; slew_upper_threshold_pct_rise : 80;
  slew_lower_threshold_pct_fall : 20; slew_upper_threshold_pct_fall : 80;
  input_threshold_pct_rise : 50; input_threshold_pct_fall : 50;
  output_threshold_pct_rise : 50; output_threshold_pct_fall : 50;
  lu_table_template(load) {{ variable_1 : total_output_net_capacitance; index_1 ("1, 2"); }}
  cell(FF) {{
    area : 1;
    ff(IQ, IQN) {{ next_state : "D"; clocked_on : "C"; }}
    pin(D) {{ direction : input; capacitance : {pin}; }}
    pin(C) {{ direction : input; clock : true; capacitance : {pin}; }}
    pin(Q) {{
      direction : output; function : "IQ";
      timing() {{
        related_pin : "C"; timing_type : rising_edge;
        cell_rise(load) {{ index_1 ("{loads}"); values ("{delays}"); }}
        cell_fall(load) {{ index_1 ("{loads}"); values ("{delays}"); }}
        rise_transition(load) {{ index_1 ("{loads}"); values ("{delays}"); }}
        fall_transition(load) {{ index_1 ("{loads}"); values ("{delays}"); }}
      }}
    }}
  }}
}}
"""
"""A register whose delay is 100 ps at no load, and 10 ps more for each fF."""

STA = """
read_liberty small.lib
read_verilog design.v
link_design design
read_sdc doubler.sdc
set_cmd_units -time ps -capacitance fF
report_checks -from f/C -to q -digits 3
write_sdc written.sdc
"""


@pytest.mark.parametrize(("time", "capacitance"), [("n", "p"), ("p", "f"), ("n", "f")])
def test_constraints_have_one_meaning_in_all_units(
    time: str, capacitance: str, design: Design, tmp_path: Path
) -> None:
    if not (program := opensta(fetch=False)):
        pytest.skip("needs OpenSTA")
    times = 1e-3 if time == "n" else 1.0
    loads = 1e-3 if capacitance == "p" else 1.0
    write_export(design, "orfs", tmp_path / "orfs")
    shutil.copy(tmp_path / "orfs" / "doubler.sdc", tmp_path)
    (tmp_path / "small.lib").write_text(
        LIBRARY.format(
            time=time,
            capacitance=capacitance,
            pin=loads,
            loads=f"{0 * loads:g}, {100 * loads:g}",
            delays=f"{100 * times:g}, {1100 * times:g}",
        )
    )
    (tmp_path / "design.v").write_text(
        "module design(clk, rst, d, q); input clk, rst, d; output q;\n"
        "FF f(.C(clk), .D(d), .Q(q)); endmodule\n"
    )
    (tmp_path / "sta.tcl").write_text(STA)
    result = program.run("-exit", "sta.tcl", directory=tmp_path)
    assert "Error" not in result.stdout + result.stderr, result.stdout + result.stderr
    # A load of 10 fF takes 200 ps; a fifth of 4000 ps lies outside of the port.
    slack = re.search(r"(-?[\d.]+)\s+slack", result.stdout)
    assert slack, result.stdout
    assert float(slack[1]) == pytest.approx(4000 - 800 - 200, abs=0.01)
    written = (tmp_path / "written.sdc").read_text()
    period = re.search(r"create_clock .*-period ([\d.]+)", written)
    load = re.search(r"set_load .*?([\d.]+) ", written)
    assert period and float(period[1]) == 4000, written
    assert load and float(load[1]) == 10, written


def test_memories_above_the_limit_of_orfs_are_named(tmp_path: Path) -> None:
    emission = Emission(top=Counter(width=300, memory=True), name="wide")
    files = write_verilog(emission, tmp_path / "rtl")
    memories = emission.modules[-1].memories
    large = Design(
        top="wide",
        summary="counts",
        verilog=tuple(files),
        ports=emission.modules[-1].ports,
        memories=memories,
    )
    write_export(large, "orfs", tmp_path / "orfs")
    readme = (tmp_path / "orfs" / "README.md").read_text()
    assert "| `wide.memory` | 300 | 16 | 4800 |" in readme
    assert "SYNTH_MEMORY_MAX_BITS" in readme
    assert "path of this folder must contain none" in " ".join(readme.split())
    assert [memory.bits for memory in large_memories(large, "orfs")] == [4800]
    small = replace(large, memories=(replace(memories[0], width=256),))
    write_export(small, "orfs", tmp_path / "orfs")
    assert "SYNTH_MEMORY" not in (tmp_path / "orfs" / "README.md").read_text()
    write_export(large, "librelane", tmp_path / "librelane")
    assert "flip-flops: 4,800 bits" in (tmp_path / "librelane" / "README.md").read_text()


def exported(unit: Unit, name: str, for_: str, directory: Path) -> Design:
    """Export a unit, and return the design."""
    emission = Emission(top=unit, name=name)
    files = write_verilog(emission, directory / f"{name}_rtl")
    design = Design(top=name, summary=name, verilog=tuple(files), ports=emission.modules[-1].ports)
    write_export(design, for_, directory / name)
    return design


TWO = """
module two(input clk, input rst, input [7:0] a, input [7:0] b, output [7:0] x, output [7:0] y);
  pair_one one(.clk(clk), .rst(rst), .a(a), .b(b), .result(x));
  pair_two two(.clk(clk), .rst(rst), .a(a), .b(b), .result(y));
endmodule
"""
"""A design of two exports."""


def test_two_exports_are_one_design(tmp_path: Path) -> None:
    """Files of one name are the same module, and the union of both file lists is a design."""
    designs = [exported(Pair(), name, "orfs", tmp_path) for name in ("pair_one", "pair_two")]
    files: dict[str, Path] = {}
    for design in designs:
        for name in design.files:
            path = tmp_path / design.top / "rtl" / name
            assert files.setdefault(name, path).read_bytes() == path.read_bytes()
    assert sorted(files) == ["adder_8.v", "pair_one.v", "pair_two.v"]
    (tmp_path / "two.v").write_text(TWO)
    assert not lint_files("two", [*files.values(), tmp_path / "two.v"])


def test_fusesoc_lists_a_shared_module_once(tmp_path: Path) -> None:
    for name in ("pair_one", "pair_two"):
        exported(Pair(), name, "fusesoc", tmp_path / "cores")
    needs = [f'      - "systola:llm:pair_{number}:{__version__}"' for number in ("one", "two")]
    (tmp_path / "cores" / "two.v").write_text(TWO)
    (tmp_path / "cores" / "two.core").write_text(
        "\n".join(
            [
                "CAPI=2:", "name: user:design:two:1", "filesets:", "  rtl:", "    files: [two.v]",
                "    file_type: verilogSource", "    depend:", *needs,
                "targets:", "  default:", "    filesets: [rtl]", "    toplevel: two",
                "    default_tool: icarus",
            ]
        )
    )  # fmt: skip
    shown = subprocess.run(
        [sys.executable, "-m", "fusesoc.main", "--cores-root", "cores", "run", "--setup",
         "--no-export", "user:design:two"],
        cwd=tmp_path, capture_output=True, text=True,
        env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    (listed,) = (tmp_path / "build").rglob("*.eda.yml")
    description = yaml.safe_load(listed.read_text())
    files = [Path(listed.parent, file["name"]) for file in description["files"]]
    assert sorted(file.name for file in files) == ["adder_8.v", "pair_one.v", "pair_two.v", "two.v"]
    assert not lint_files("two", files)


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
    with pytest.raises(UserError, match=r"FOR must be one of orfs, .*, fusesoc, litex, not"):
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
