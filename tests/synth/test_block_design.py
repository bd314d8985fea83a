"""The IP package and the block designs of accelerators, with Vivado's commands played."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hdl.catalog import entry_named
from hdl.emit import Port
from hdl.emitted import emit_unit
from hdl.errors import UserError
from hdl.shell.catalog import UNITS
from hdl.shell.shell_parameters import ShellParameters
from hdl.target import Target
from synth.block_design import ACCESS, BOARDS
from synth.export import Design, write_export
from tests.synth.unit_ports import ports_of
from tests.synth.vivado_double import Vivado

pytest.importorskip("tkinter")

TOPS = [
    entry.top
    for entry in UNITS
    if all(isinstance(preset, ShellParameters) for preset in entry.presets.values())
]
NAMES = [board.name for board in BOARDS]
MODEL_BYTES = 1_300_000_000
"""Bytes of OPT-1.3B with 8 bits per weight, the largest model of MEADOW's paper."""


def exported(top: str, folder: Path, preset: str = "tiny") -> tuple[Design, Path]:
    """Export an accelerator whose Verilog is an empty module."""
    parameters = entry_named(top).parameters(preset)
    (folder / f"{top}.v").write_text(f"module {top}; endmodule\n")
    manifest = {
        "name": top,
        "parameters": {name: getattr(parameters, name) for name in ("burst_beats", "outstanding")},
        **parameters.manifest_sections(),
    }
    (folder / f"{top}.json").write_text(json.dumps(manifest))
    design = Design(
        top=top,
        summary='an accelerator with "AXI4"',
        verilog=(folder / f"{top}.v",),
        ports=ports_of(top, parameters),
        documents=(folder / f"{top}.json",),
    )
    write_export(design, "vivado", folder / "vivado")
    return design, folder / "vivado"


@pytest.fixture(scope="module")
def veda(tmp_path_factory: pytest.TempPathFactory) -> tuple[Design, Path]:
    design, directory = exported("veda_axi", tmp_path_factory.mktemp("veda"))
    (directory / "ip").mkdir()
    return design, directory


def packaged(design: Design, directory: Path) -> Vivado:
    return Vivado(design.ports).run(directory / "package.tcl")


@pytest.mark.parametrize("top", TOPS)
def test_package_declares_each_port_once(top: str, tmp_path: Path) -> None:
    design, directory = exported(top, tmp_path)
    vivado = packaged(design, directory)
    assert vivado.problems == []
    regions = design.manifest["regions"]
    masters = {port["name"]: port["direction"] for one in regions for port in one["ports"]}
    found = {
        name: one["parameters"]["READ_WRITE_MODE"].removesuffix("_ONLY").lower()
        for name, one in vivado.interfaces.items()
        if name.startswith("m_axi")
    }
    assert found == masters
    listed = design.manifest["register_map"]["registers"]
    for one in listed:
        for part in one["fields"]:
            cleared = part["access"] == "read, write 1 to clear"
            part["written"] = "oneToClear" if cleared else ""
            part["access"] = ACCESS[part["access"]]
        one["access"] = ACCESS[one["access"]]
    assert vivado.registers() == listed


@pytest.mark.parametrize("board", NAMES)
@pytest.mark.parametrize("top", TOPS)
def test_block_design_is_complete(top: str, board: str, tmp_path: Path) -> None:
    design, directory = exported(top, tmp_path, "paper")
    (directory / "ip").mkdir()
    core = packaged(design, directory)
    vivado = Vivado(packaged=core).run(directory / f"{board}.tcl")
    assert vivado.problems == []
    masters = [name for name in vivado.spaces() if name.startswith("accelerator/")]
    links = dict(vivado.links)
    for name in masters:
        # Whole bursts are in a FIFO, so that no burst waits inside the interconnect.
        fifo = vivado.cells[links[name].removesuffix("/S_AXI")]
        mode = core.interface(name.removeprefix("accelerator/"))["parameters"]["READ_WRITE_MODE"]
        assert fifo.properties[f"CONFIG.{mode.removesuffix('_ONLY')}_FIFO_DELAY"] == "1"
        sizes = [size for space, _segment, _offset, size in vivado.assigned if space == name]
        assert sum(sizes) >= MODEL_BYTES
    assert links["registers/M00_AXI"] == "accelerator/s_axi"
    (registers,) = [one for one in vivado.assigned if one[1] == "accelerator/s_axi/reg0"]
    assert registers[2] == {"zcu102": 0xA000_0000, "u250": 0}[board]
    request = vivado.nets["/accelerator/interrupt_request"]
    assert request & {"/processor/pl_ps_irq0", "/interrupt/src_in"}


def test_exported_verilog_has_the_packaged_ports(tmp_path: Path) -> None:
    entry = entry_named("meadow_axi")
    emitted = emit_unit(entry, entry.parameters("tiny"), Target.FPGA)
    design = Design(
        top="meadow_axi",
        summary=entry.summary,
        verilog=emitted.verilog,
        ports=emitted.ports,
        documents=emitted.documents,
    )
    write_export(design, "vivado", tmp_path / "vivado")
    text = (tmp_path / "vivado" / "rtl" / "meadow_axi.v").read_text()
    declared = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);$", text, re.M)
    ports = [Port((name,), direction, int(high or 0) + 1) for direction, high, name in declared]
    assert Vivado(ports).run(tmp_path / "vivado" / "package.tcl").problems == []


def test_bitstream_is_implemented_on_request(veda: tuple[Design, Path]) -> None:
    design, directory = veda
    core = packaged(design, directory)
    for arguments in ((), ("bitstream",)):
        vivado = Vivado(packaged=core).run(directory / "zcu102.tcl", *arguments)
        runs = [words for words in vivado.calls if words[0] in ("launch_runs", "wait_on_run")]
        assert len(runs) == 2 * len(arguments)


PACKAGE_FAULTS = {
    "an interface without a port": (r" +ARLEN m_axi_states_arlen\n", "", "has 0 interfaces"),
    "a port that does not exist": ("m_axi_states_arlen", "m_axi_states_length", "no port"),
    "exchanged ports": (
        "RDATA m_axi_states_rdata",
        "RDATA m_axi_states_rready",
        "wrong direction",
    ),
    "a wrong width": (
        r"(ARLEN m_axi_states_)arlen(.*)(ARSIZE m_axi_states_)arsize",
        r"\1arsize\2\3arlen",
        "wrong width",
    ),
    "a master as slave": ("interface:aximm master", "interface:aximm slave", "wrong direction"),
    "a small address space": ("m_axi_states 1099511627776", "m_axi_states 4096", "address space"),
    "an interface without a clock": (":m_axi_states:", ":", "the clock has other"),
    "a reset of the other level": ("ACTIVE_HIGH", "ACTIVE_LOW", "active high"),
    "a large register block": ("range 4096", "range 65536", "memory map"),
    "two registers at one offset": ("digest 0x008", "digest 0x004", "offsets"),
    "overlapping fields": ("flush 1 1", "flush 0 1", "overlap"),
    "a write port that reads": ("READ_ONLY", "WRITE_ONLY", "mode"),
    "an unknown property": ("set_property base_address", "set_property base", "no property"),
    "an unknown option": ("-import_files", "-import", "no option"),
    "a core that is not saved": ("ipx::save_core", "ipx::check_integrity", "not saved"),
}


@pytest.mark.parametrize("name", PACKAGE_FAULTS)
def test_faults_of_the_package_are_found(name: str, veda: tuple[Design, Path]) -> None:
    pattern, new, problem = PACKAGE_FAULTS[name]
    design, directory = veda
    text = (directory / "package.tcl").read_text()
    changed = re.sub(pattern, new, text, count=1, flags=re.S)
    assert changed != text
    vivado = Vivado(design.ports).run(directory / "package.tcl", text=changed)
    assert any(problem in one for one in vivado.problems), vivado.problems


DESIGN_FAULTS = {
    "a group without its memory port": (
        "zcu102",
        r"    join_interfaces masters_\$group/M00_AXI processor/S_AXI_HP\$\{group\}_FPD\n",
        "",
        "has 0 connections",
    ),
    "masters without a FIFO's output": (
        "u250",
        r"        join_interfaces fifo_\$name/M_AXI [^\n]*\n",
        "",
        "has 0 connections",
    ),
    "a master that is connected twice": (
        "zcu102",
        r"(        join_interfaces accelerator/\$name fifo_\$name/S_AXI\n)",
        r"\1\1",
        "has 2 connections",
    ),
    "a disabled memory port": ("zcu102", r"S_AXI_GP\$slave 1", "S_AXI_GP$slave 0", "S_AXI_HP0_FPD"),
    "an unaligned segment": ("zcu102", "-offset 0xa0000000", "-offset 0xa0000800", "cannot be at"),
    "memory at another address": ("zcu102", "-offset 0 ", "-offset 0x80000000 ", "cannot be at"),
    "a range that is no power of two": (
        "u250",
        "-range 17179869184",
        "-range 17179869000",
        "bytes",
    ),
    "too much memory": ("u250", "-range 17179869184", "-range 34359738368", "bytes"),
    "a segment that is not listed": ("zcu102", "exclude_bd_addr_seg", "get_files", "does not list"),
    "a host without registers": (
        "u250",
        "host/M_AXI_LITE registers",
        "host/M_AXI registers",
        "conn",
    ),
    "an open reset": (
        "zcu102",
        r"connect reset/peripheral_reset accelerator/rst\n",
        "",
        "0 drivers",
    ),
    "an open interrupt": ("u250", "connect interrupt/dest_out host/usr_irq_req", "", "0 drivers"),
    "two drivers": (
        "u250",
        "clock/clk_in1 registers/aclk",
        "clock/clk_out1 registers/aclk",
        "2 driv",
    ),
    "a FIFO of another clock": (
        "u250",
        r"\$users \{\*\}",
        r"[lrange $users 0 end-1] {*}",
        "0 driv",
    ),
    "a short FIFO": ("u250", "_FIFO_DEPTH 512", "_FIFO_DEPTH 32", "512 words"),
    "an unknown core": ("u250", "xilinx.com:ip:xdma", "xilinx.com:ip:xmda", "xmda"),
    "an unknown pin": ("u250", "host/axi_aresetn", "host/axi_resetn", "axi_resetn"),
    "an unknown property": ("u250", "axilite_master_en", "axilite_master", "no property"),
    "an illegal value": ("zcu102", "__DATA_WIDTH 128", "__DATA_WIDTH 256", "cannot be"),
    "an unknown option": ("zcu102", "-target_address_space", "-address_space", "no option"),
    "a design that is not validated": ("zcu102", "validate_bd_design\n", "", "validated"),
    "constraints that do not exist": ("u250", "u250.xdc", "u280.xdc", "no file"),
}


@pytest.mark.parametrize("name", DESIGN_FAULTS)
def test_faults_of_a_block_design_are_found(name: str, veda: tuple[Design, Path]) -> None:
    board, pattern, new, problem = DESIGN_FAULTS[name]
    design, directory = veda
    script = directory / f"{board}.tcl"
    text = script.read_text()
    changed = re.sub(pattern, new, text, count=1)
    assert changed != text
    core = packaged(design, directory)
    vivado = Vivado(packaged=core).run(script, text=changed)
    assert any(problem in one for one in vivado.problems), vivado.problems


def test_missing_prerequisites_stop_the_script(tmp_path: Path) -> None:
    import tkinter

    _design, directory = exported("kelle_axi", tmp_path)
    with pytest.raises(tkinter.TclError, match="package the accelerator first"):
        Vivado().run(directory / "zcu102.tcl")
    (directory / "ip").mkdir()
    with pytest.raises(tkinter.TclError, match="install the board files of Alveo U250"):
        Vivado(boards="none").run(directory / "u250.tcl")


def test_too_many_masters_are_refused(tmp_path: Path) -> None:
    design, _directory = exported("veda_axi", tmp_path)
    names = [f"m_axi_more_{number}" for number in range(60)]
    master = [port for port in design.ports if port.path[0] == "m_axi_states"]
    more = [
        Port((name, port.path[-1]), port.direction, port.width) for name in names for port in master
    ]
    wide = replace(design, ports=[*design.ports, *more])
    with pytest.raises(UserError, match="ZCU102 must have at most 64 AXI4 masters, not 73"):
        write_export(wide, "vivado", tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_short_addresses_reach_a_part_of_the_memory(tmp_path: Path) -> None:
    design, directory = exported("veda_axi", tmp_path)
    ports = [
        replace(port, width=24) if re.search("m_axi.*_a[rw]addr", port.name) else port
        for port in design.ports
    ]
    short = replace(design, ports=ports)
    write_export(short, "vivado", directory)
    (directory / "ip").mkdir()
    core = packaged(short, directory)
    for board in NAMES:
        assert Vivado(packaged=core).run(directory / f"{board}.tcl").problems == []
