"""A double of the commands of Vivado that package a core and build a block design.

The Tcl runs in Python's interpreter. The double accepts the options that Vivado documents, keeps
what the commands build, and lists what is wrong with it: `Vivado.problems`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from hdl.emit import Port

OPTIONS: dict[str, tuple[str, str]] = {
    # Options without a value, and with one.
    "create_project": ("-in_memory", "-part"),
    "current_project": ("", ""),
    "current_fileset": ("", ""),
    "add_files": ("-norecurse", "-fileset"),
    "set_property": ("-dict", ""),
    "get_property": ("", ""),
    "update_compile_order": ("", "-fileset"),
    "update_ip_catalog": ("", ""),
    "get_board_parts": ("-quiet -latest_file_version", ""),
    "get_files": ("", ""),
    "ipx::package_project": ("-import_files -force", "-root_dir -vendor -library -taxonomy"),
    "ipx::current_core": ("", ""),
    "ipx::remove_all_bus_interface": ("", ""),
    "ipx::remove_all_address_space": ("", ""),
    "ipx::get_memory_maps": ("", "-of_objects"),
    "ipx::remove_memory_map": ("", ""),
    "ipx::add_bus_interface": ("", ""),
    "ipx::add_port_map": ("", ""),
    "ipx::add_bus_parameter": ("", ""),
    "ipx::add_address_space": ("", ""),
    "ipx::add_memory_map": ("", ""),
    "ipx::add_address_block": ("", ""),
    "ipx::add_register": ("", ""),
    "ipx::add_field": ("", ""),
    "ipx::create_xgui_files": ("", ""),
    "ipx::update_checksums": ("", ""),
    "ipx::check_integrity": ("", ""),
    "ipx::save_core": ("", ""),
    "create_bd_design": ("", ""),
    "create_bd_cell": ("", "-type -vlnv"),
    "create_bd_port": ("", "-dir -type"),
    "create_bd_intf_port": ("", "-mode -vlnv"),
    "get_bd_cells": ("", ""),
    "get_bd_pins": ("", ""),
    "get_bd_ports": ("", ""),
    "get_bd_intf_pins": ("", ""),
    "get_bd_intf_ports": ("", ""),
    "get_bd_addr_spaces": ("", ""),
    "get_bd_addr_segs": ("", ""),
    "connect_bd_net": ("", ""),
    "connect_bd_intf_net": ("", ""),
    "apply_bd_automation": ("", "-rule -config"),
    "assign_bd_address": ("", "-offset -range -target_address_space"),
    "exclude_bd_addr_seg": ("", "-target_address_space"),
    "validate_bd_design": ("", ""),
    "save_bd_design": ("", ""),
    "make_wrapper": ("-top -import", "-files"),
    "launch_runs": ("", "-to_step"),
    "wait_on_run": ("", ""),
}

PROPERTIES = {
    "interface": "bus_type_vlnv abstraction_type_vlnv interface_mode master_address_space_ref "
    "slave_memory_map_ref",
    "map": "physical_name",
    "parameter": "value",
    "space": "range width",
    "block": "base_address range width usage access",
    "register": "address_offset size access description",
    "field": "bit_offset bit_width access description modified_write_value",
    "core": "name version display_name description",
    "fileset": "top",
    "project": "board_part ip_repo_paths",
}
"""Properties of the objects other than those of block designs."""

AXI_PARAMETERS = set(
    "PROTOCOL READ_WRITE_MODE MAX_BURST_LENGTH NUM_READ_OUTSTANDING NUM_WRITE_OUTSTANDING "
    "SUPPORTS_NARROW_BURST".split()
)
FROM_MASTER = re.compile("A[WR](?!READY).*|W(?!READY).*|BREADY|RREADY")
"""Signals of AXI that the master drives."""

AXI_WIDTHS = {"LEN": 8, "SIZE": 3, "BURST": 2, "CACHE": 4, "PROT": 3, "VALID": 1, "READY": 1}


@dataclass
class Cell:
    """A cell of a block design: its core, its properties, and what it has because of them."""

    core: str
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """Interfaces with mode and clock, pins with direction, segments with bytes and base."""

    interfaces: Mapping[str, tuple[str, str]]
    pins: Mapping[str, str]
    segments: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    spaces: Mapping[str, str] = field(default_factory=dict)


def shape_of(core: str, properties: Mapping[str, str], packaged: "Vivado | None") -> Shape:
    """Return what a core has.

    Raises
    ------
    KeyError
        If the core is unknown.
    """

    def number(name: str, default: int = 0) -> int:
        return int(properties.get(f"CONFIG.{name}", default))

    if core == "smartconnect":
        clocks = ["aclk", *(f"aclk{i}" for i in range(1, number("NUM_CLKS", 1)))]
        slaves = {f"S{i:02}_AXI": ("slave", "") for i in range(number("NUM_SI", 1))}
        masters = {f"M{i:02}_AXI": ("master", "") for i in range(number("NUM_MI", 1))}
        return Shape(slaves | masters, {**dict.fromkeys(clocks, "in"), "aresetn": "in"})
    if core == "axi_data_fifo":
        both = {"S_AXI": ("slave", "aclk"), "M_AXI": ("master", "aclk")}
        return Shape(both, {"aclk": "in", "aresetn": "in"})
    if core == "proc_sys_reset":
        inputs = dict.fromkeys(("slowest_sync_clk", "ext_reset_in"), "in")
        outputs = dict.fromkeys(("peripheral_reset", "peripheral_aresetn"), "out")
        return Shape({}, {**inputs, "dcm_locked": "optional", **outputs})
    if core == "zynq_ultra_ps_e":
        return _processor(number)
    if core == "ddr4":
        return Shape(
            {
                "C0_DDR4_S_AXI": ("slave", "c0_ddr4_ui_clk"),
                "C0_SYS_CLK": ("slave", "pad"),
                "C0_DDR4": ("master", "pad"),
            },
            {
                "sys_rst": "in",
                "c0_ddr4_aresetn": "in",
                "c0_ddr4_ui_clk": "out",
                "c0_ddr4_ui_clk_sync_rst": "out",
            },
            {
                "C0_DDR4_MEMORY_MAP/C0_DDR4_ADDRESS_BLOCK": (
                    1 << number("C0.DDR4_AxiAddressWidth"),
                    None,
                )
            },
        )
    if core == "xdma":
        return Shape(
            {
                "M_AXI": ("master", "axi_aclk"),
                "M_AXI_LITE": ("master", "axi_aclk"),
                "pcie_mgt": ("master", "pad"),
            },
            {
                **dict.fromkeys(("sys_clk", "sys_clk_gt", "sys_rst_n", "usr_irq_req"), "in"),
                **dict.fromkeys(("axi_aclk", "axi_aresetn"), "out"),
            },
            spaces={"M_AXI": "M_AXI", "M_AXI_LITE": "M_AXI_LITE"},
        )
    plain = {
        "util_ds_buf": ({"CLK_IN_D": ("slave", "pad")}, "", "IBUF_OUT IBUF_DS_ODIV2"),
        "util_vector_logic": ({}, "Op1", "Res"),
        "clk_wiz": ({}, "clk_in1", "clk_out1 locked"),
        "xpm_cdc_gen": ({}, "src_clk src_in dest_clk", "dest_out"),
    }
    if core in plain:
        interfaces, inputs, outputs = plain[core]
        pins = dict.fromkeys(inputs.split(), "in") | dict.fromkeys(outputs.split(), "out")
        return Shape(interfaces, pins)
    if packaged is None or packaged.core_name != core:
        raise KeyError(core)
    return packaged.packaged_shape


def _processor(number: Callable[..., int]) -> Shape:
    interfaces: dict[str, tuple[str, str]] = {}
    pins, segments = {"pl_clk0": "out", "pl_resetn0": "out"}, {}
    if number("PSU__USE__IRQ0"):
        pins["pl_ps_irq0"] = "in"
    if number("PSU__USE__M_AXI_GP0", 1):
        interfaces["M_AXI_HPM0_FPD"] = ("master", "maxihpm0_fpd_aclk")
        pins["maxihpm0_fpd_aclk"] = "in"
    for port in range(4):
        if number(f"PSU__USE__S_AXI_GP{port + 2}"):
            interfaces[f"S_AXI_HP{port}_FPD"] = ("slave", f"saxihp{port}_fpd_aclk")
            pins[f"saxihp{port}_fpd_aclk"] = "in"
            stem = f"SAXIGP{port + 2}/HP{port}"
            segments |= {
                f"{stem}_DDR_LOW": (1 << 31, 0),
                f"{stem}_DDR_HIGH": (1 << 35, 1 << 35),
                f"{stem}_LPS_OCM": (1 << 24, 0xFF00_0000),
                f"{stem}_QSPI": (1 << 29, 0xC000_0000),
            }
    return Shape(interfaces, pins, segments, {"Data": "M_AXI_HPM0_FPD"})


CORE_PROPERTIES: dict[str, dict[str, str]] = {
    "smartconnect": {"NUM_SI": "[1-9]|1[0-6]", "NUM_MI": "[1-9]|1[0-6]", "NUM_CLKS": "[1-9]"},
    "axi_data_fifo": {"(READ|WRITE)_FIFO_DEPTH": "0|32|512", "(READ|WRITE)_FIFO_DELAY": "0|1"},
    "zynq_ultra_ps_e": {
        "PSU__FPGA_PL0_ENABLE": "0|1",
        "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ": r"[\d.]+",
        "PSU__USE__(IRQ0|M_AXI_GP[0-2]|S_AXI_GP[0-6])": "0|1",
        "PSU__(MAXIGP[0-2]|SAXIGP[0-6])__DATA_WIDTH": "32|64|128",
    },
    "util_ds_buf": {
        "C_BUF_TYPE": "IBUFDSGTE",
        "DIFF_CLK_IN_BOARD_INTERFACE": "pcie_refclk",
        "USE_BOARD_FLOW": "true|false",
    },
    "xdma": {
        "PCIE_BOARD_INTERFACE": "pci_express_x16",
        "SYS_RST_N_BOARD_INTERFACE": "pcie_perstn",
        "xdma_axi_intf_mm": "AXI_Memory_Mapped|AXI_Stream",
        "axilite_master_en": "true|false",
        "axilite_master_size": "4|8|16|32|64|128|256|512",
        "axilite_master_scale": "Kilobytes|Megabytes|Gigabytes",
        "pciebar2axibar_axil_master": "0x[0-9a-fA-F]+",
        "xdma_num_usr_irq": "[1-9]|1[0-6]",
    },
    "ddr4": {
        "C0_CLOCK_BOARD_INTERFACE": "default_300mhz_clk[0-3]",
        "C0_DDR4_BOARD_INTERFACE": "ddr4_sdram_c[0-3]",
        "C0.DDR4_AUTO_AP_COL_A3": "true|false",
        "C0.DDR4_AxiAddressWidth": "34",
        "C0.DDR4_AxiDataWidth": "512",
        "C0.DDR4_Mem_Add_Map": "ROW_COLUMN_BANK_INTLV|ROW_COLUMN_BANK",
    },
    "util_vector_logic": {"C_OPERATION": "and|or|xor|not", "C_SIZE": r"\d+"},
    "proc_sys_reset": {},
    "clk_wiz": {
        "PRIM_SOURCE": "No_buffer|Global_buffer",
        "CLKOUT1_REQUESTED_OUT_FREQ": r"[\d.]+",
        "USE_RESET": "true|false",
    },
    "xpm_cdc_gen": {"CDC_TYPE": "xpm_cdc_single", "WIDTH": "1"},
}
"""Properties of the cores, without ``CONFIG.``, and their legal values."""


class Vivado:
    """The state of one run of Vivado."""

    def __init__(
        self, ports: Sequence[Port] = (), *, packaged: "Vivado | None" = None, boards: str = "*"
    ) -> None:
        self.ports = {port.name: port for port in ports}
        self.packaged = packaged
        self.boards = boards
        self.found: list[str] = []
        self.calls: list[tuple[str, ...]] = []
        self.objects: dict[str, dict[str, str]] = {}
        self.cells: dict[str, Cell] = {}
        self.pads: dict[str, tuple[str, str]] = {}
        self.nets: dict[str, set[str]] = {}
        self.links: list[tuple[str, str]] = []
        self.assigned: list[tuple[str, str, int, int]] = []
        self.excluded: list[tuple[str, str]] = []
        self.files: list[Path] = []

    def run(self, script: Path, *arguments: str, text: str | None = None) -> "Vivado":
        """Run a script, or a changed text of it."""
        import tkinter

        tcl = tkinter.Tcl()
        tcl.eval("namespace eval ipx {}")
        for name in OPTIONS:
            tcl.createcommand(name, lambda *words, name=name: self._call(name, words))
        if text is not None:
            script = script.with_name(f"changed_{script.name}")
            script.write_text(text)
        tcl.eval(f"set argv {{{' '.join(arguments)}}}")
        tcl.eval(f"source {{{script}}}")
        return self

    @property
    def core_name(self) -> str:
        """Name of the packaged core."""
        return self.objects["core"]["name"]

    @property
    def problems(self) -> list[str]:
        """What is wrong."""
        checks = self._package_problems() if not self.cells else self._design_problems()
        return [*self.found, *checks]

    # Commands

    def _call(self, name: str, words: tuple[str, ...]) -> str:
        self.calls.append((name, *words))
        flags, valued = (set(one.split()) for one in OPTIONS[name])
        options: dict[str, str] = {}
        rest: list[str] = []
        pending = list(map(str, words))
        while pending:
            word = pending.pop(0)
            if word in flags:
                options[word] = ""
            elif word in valued:
                options[word] = pending.pop(0) if pending else ""
            elif re.match("-[a-z]", word):
                self.found.append(f"{name} has no option {word}")
            else:
                rest.append(word)
        handler = getattr(self, "_" + name.replace("::", "_"), None)
        if handler is None:
            return ""
        try:
            return handler(rest, options)
        except (KeyError, ValueError, IndexError, TypeError) as problem:
            self.found.append(f"{name} {' '.join(rest)}: {problem!r}")
            return ""

    def _add(self, kind: str, name: str, parent: str = "") -> str:
        path = f"{kind}:{parent.partition(':')[2]}/{name}" if parent else f"{kind}:{name}"
        if path in self.objects:
            self.found.append(f"{path} exists already")
        self.objects[path] = {}
        return path

    def _current_project(self, rest: list[str], options: dict[str, str]) -> str:
        return "project"

    def _current_fileset(self, rest: list[str], options: dict[str, str]) -> str:
        return "fileset"

    def _ipx_current_core(self, rest: list[str], options: dict[str, str]) -> str:
        return "core"

    def _add_files(self, rest: list[str], options: dict[str, str]) -> str:
        self.files += map(Path, rest)
        return ""

    def _get_board_parts(self, rest: list[str], options: dict[str, str]) -> str:
        return rest[0].replace("*", "x") if fnmatchcase(rest[0], self.boards) else ""

    def _get_files(self, rest: list[str], options: dict[str, str]) -> str:
        return rest[0]

    def _get_property(self, rest: list[str], options: dict[str, str]) -> str:
        return rest[1].rpartition("/")[2].rpartition(":")[2]

    def _ipx_get_memory_maps(self, rest: list[str], options: dict[str, str]) -> str:
        return "memorymap:inferred"

    def _set_property(self, rest: list[str], options: dict[str, str]) -> str:
        import tkinter

        *pairs, target = rest
        if "-dict" in options:
            pairs = list(tkinter.Tcl().splitlist(pairs[0]))
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            if target.startswith("/"):
                self._configure(target[1:], name, value)
                continue
            kind = target.partition(":")[0]
            if name not in PROPERTIES.get(kind, "").split():
                self.found.append(f"{kind or 'nothing'} has no property {name}")
            self.objects.setdefault(target, {})[name] = value
        return ""

    def _configure(self, name: str, property_: str, value: str) -> None:
        if name in self.pads:
            legal = {"CONFIG.FREQ_HZ": r"\d+", "CONFIG.POLARITY": "ACTIVE_LOW|ACTIVE_HIGH"}
        else:
            core = self.cells[name].core
            legal = {f"CONFIG.{key}": one for key, one in CORE_PROPERTIES[core].items()}
            self.cells[name].properties[property_] = value
        values = [one for key, one in legal.items() if re.fullmatch(key, property_)]
        if not values:
            self.found.append(f"{name} has no property {property_}")
        elif not re.fullmatch(values[0], value):
            self.found.append(f"{property_} of {name} cannot be {value}")

    def _ipx_add_bus_interface(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("interface", rest[0])

    def _ipx_add_port_map(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("map", rest[0], rest[1])

    def _ipx_add_bus_parameter(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("parameter", rest[0], rest[1])

    def _ipx_add_address_space(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("space", rest[0])

    def _ipx_add_memory_map(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("memorymap", rest[0])

    def _ipx_add_address_block(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("block", rest[0], rest[1])

    def _ipx_add_register(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("register", rest[0], rest[1])

    def _ipx_add_field(self, rest: list[str], options: dict[str, str]) -> str:
        return self._add("field", rest[0], rest[1])

    def _create_bd_cell(self, rest: list[str], options: dict[str, str]) -> str:
        vendor, library, core, *version = options["-vlnv"].split(":")
        if options["-type"] != "ip" or rest[0] in self.cells:
            self.found.append(f"the cell {rest[0]} cannot be created")
        wanted = [vendor, library, *version]
        own = ["xilinx.com", "ip"]
        if self.packaged is not None and core == self.packaged.core_name:
            own = ["systola", "llm", self.packaged.objects["core"]["version"]]
        if wanted != own:
            self.found.append(f"there is no core {options['-vlnv']}")
        shape_of(core, {}, self.packaged)
        self.cells[rest[0]] = Cell(core)
        return f"/{rest[0]}"

    def _create_bd_port(self, rest: list[str], options: dict[str, str]) -> str:
        self.pads[rest[0]] = ("pin", options["-dir"])
        return f"/{rest[0]}"

    def _create_bd_intf_port(self, rest: list[str], options: dict[str, str]) -> str:
        self.pads[rest[0]] = ("interface", options["-mode"].lower())
        return f"/{rest[0]}"

    def _get_bd_cells(self, rest: list[str], options: dict[str, str]) -> str:
        self.cells[rest[0]]
        return f"/{rest[0]}"

    def _get_bd_pins(self, rest: list[str], options: dict[str, str]) -> str:
        cell, pin = rest[0].split("/")
        self.shape(cell).pins[pin]
        return f"/{rest[0]}"

    def _get_bd_intf_pins(self, rest: list[str], options: dict[str, str]) -> str:
        cell, name = rest[0].split("/")
        self.shape(cell).interfaces[name]
        return f"/{rest[0]}"

    def _get_bd_ports(self, rest: list[str], options: dict[str, str]) -> str:
        self.pads[rest[0]]
        return f"/{rest[0]}"

    _get_bd_intf_ports = _get_bd_ports

    def _get_bd_addr_spaces(self, rest: list[str], options: dict[str, str]) -> str:
        cell, name = rest[0].split("/")
        self.shape(cell).spaces[name]
        return f"/{rest[0]}"

    def _get_bd_addr_segs(self, rest: list[str], options: dict[str, str]) -> str:
        cell, _slash, pattern = rest[0].partition("/")
        found = [name for name in self.shape(cell).segments if fnmatchcase(name, pattern)]
        if not found:
            self.found.append(f"there is no segment {rest[0]}")
        return " ".join(f"/{cell}/{name}" for name in found)

    def _connect_bd_net(self, rest: list[str], options: dict[str, str]) -> str:
        # A pin that does not exist is an empty word; `_get_bd_pins` has reported it.
        pins = {one for one in rest if one}
        for one in pins:
            pins = pins | self.nets.get(one, set())
        for one in pins:
            self.nets[one] = pins
        return ""

    def _connect_bd_intf_net(self, rest: list[str], options: dict[str, str]) -> str:
        if len(rest) != 2:
            self.found.append(f"two interfaces are connected, not {len(rest)}")
        elif all(rest):
            self.links.append((rest[0][1:], rest[1][1:]))
        return ""

    def _apply_bd_automation(self, rest: list[str], options: dict[str, str]) -> str:
        if options["-rule"] != "xilinx.com:bd_rule:zynq_ultra_ps_e":
            self.found.append(f"there is no rule {options['-rule']}")
        return ""

    def _assign_bd_address(self, rest: list[str], options: dict[str, str]) -> str:
        offset, size = (int(options[one], 0) for one in ("-offset", "-range"))
        self.assigned.append((options["-target_address_space"][1:], rest[0][1:], offset, size))
        return ""

    def _exclude_bd_addr_seg(self, rest: list[str], options: dict[str, str]) -> str:
        self.excluded.append((options["-target_address_space"][1:], rest[0][1:]))
        return ""

    # The packaged core

    def interface(self, name: str) -> dict[str, Any]:
        """Return an interface: its properties, port maps and parameters."""
        parts = {
            kind: {
                path.rpartition("/")[2]: values
                for path, values in self.objects.items()
                if path.startswith(f"{kind}:{name}/")
            }
            for kind in ("map", "parameter")
        }
        return {
            **self.objects[f"interface:{name}"],
            "maps": {key: one.get("physical_name", "") for key, one in parts["map"].items()},
            "parameters": {key: one.get("value", "") for key, one in parts["parameter"].items()},
        }

    @property
    def interfaces(self) -> dict[str, dict[str, Any]]:
        """All interfaces by name."""
        names = [path[10:] for path in self.objects if path.startswith("interface:")]
        return {name: self.interface(name) for name in names}

    @cached_property
    def packaged_shape(self) -> Shape:
        """The shape of the packaged core in a block design."""
        axi = {
            name: (one["interface_mode"], "clk")
            for name, one in self.interfaces.items()
            if one["bus_type_vlnv"] == "xilinx.com:interface:aximm:1.0"
        }
        pins = {"clk": "in", "rst": "in", "interrupt_request": "out"}
        segments = {
            path.partition(":")[2]: (int(values["range"]), None)
            for path, values in self.objects.items()
            if path.startswith("block:")
        }
        spaces = {
            one["master_address_space_ref"]: name
            for name, one in self.interfaces.items()
            if "master_address_space_ref" in one
        }
        return Shape(axi, pins, segments, spaces)

    def registers(self) -> list[dict[str, Any]]:
        """Return the registers with their fields, as the manifest has them."""
        found = []
        for path, values in self.objects.items():
            if path.startswith("register:"):
                stem = path.partition(":")[2]
                fields = [
                    {
                        "name": name.rpartition("/")[2],
                        "first": int(one["bit_offset"]),
                        "width": int(one["bit_width"]),
                        "meaning": one["description"],
                        "access": one["access"],
                        "written": one.get("modified_write_value", ""),
                    }
                    for name, one in self.objects.items()
                    if name.startswith(f"field:{stem}/")
                ]
                found.append(
                    {
                        "name": stem.rpartition("/")[2],
                        "offset": int(values["address_offset"], 0),
                        "access": values["access"],
                        "meaning": values["description"],
                        "fields": fields,
                    }
                )
        return found

    def _package_problems(self) -> Iterator[str]:
        interfaces = self.interfaces
        used = Counter(port for one in interfaces.values() for port in one["maps"].values())
        yield from (
            f"port {name} has {used[name]} interfaces" for name in self.ports if used[name] != 1
        )
        yield from (f"there is no port {name}" for name in used if name not in self.ports)
        axi = []
        for name, one in interfaces.items():
            bus, version = one["bus_type_vlnv"].rsplit(":", 1)
            if one["abstraction_type_vlnv"] != f"{bus}_rtl:{version}":
                yield f"{name} has the abstraction {one['abstraction_type_vlnv']}"
            if bus == "xilinx.com:interface:aximm":
                axi.append(name)
                yield from self._axi_problems(name, one)
        clock, reset = (interfaces.get(name, {"parameters": {}}) for name in ("clk", "rst"))
        if sorted(clock["parameters"].get("ASSOCIATED_BUSIF", "").split(":")) != sorted(axi):
            yield "the clock has other interfaces than those of AXI"
        if clock["parameters"].get("ASSOCIATED_RESET") != "rst":
            yield "the clock has no reset"
        if reset["parameters"].get("POLARITY") != "ACTIVE_HIGH":
            yield "the reset is active high"
        if "ipx::save_core" not in {words[0] for words in self.calls}:
            yield "the core is not saved"
        yield from (f"there is no file {file}" for file in self.files if not file.is_file())

    def _axi_problems(self, name: str, one: dict[str, Any]) -> Iterator[str]:
        master = one["interface_mode"] == "master"
        maps, parameters = one["maps"], one["parameters"]
        unknown = set(parameters) - AXI_PARAMETERS
        yield from (f"{name} has the parameter {key}" for key in unknown)
        for signal, port in maps.items():
            if port not in self.ports:
                continue
            driven = bool(FROM_MASTER.fullmatch(signal)) == master
            if (self.ports[port].direction == "output") != driven:
                yield f"{port} has the wrong direction for {signal} of {name}"
            width = AXI_WIDTHS.get(re.sub("^(A[WR]|[WRB])", "", signal))
            if width and self.ports[port].width != width:
                yield f"{port} has the wrong width for {signal}"
        mode = parameters.get("READ_WRITE_MODE", "READ_WRITE")
        for direction, channels in (("READ", "AR R"), ("WRITE", "AW W B")):
            for channel in channels.split():
                has = {f"{channel}VALID", f"{channel}READY"} <= maps.keys()
                if has != (direction in mode):
                    yield f"the mode of {name} is not {mode}"
        wide = [
            self.ports[maps[key]].width
            for key in ("ARADDR", "AWADDR")
            if maps.get(key) in self.ports
        ]
        if master:
            space = self.objects.get(f"space:{one.get('master_address_space_ref')}", {})
            if not wide or int(space.get("range", 0)) != 1 << max(wide):
                yield f"the address space of {name} has not the range of its addresses"
            if (parameters.get("PROTOCOL") == "AXI4") != bool({"ARLEN", "AWLEN"} & maps.keys()):
                yield f"{name} is not AXI4"
        else:
            stem = one.get("slave_memory_map_ref")
            blocks = [v for k, v in self.objects.items() if k.startswith(f"block:{stem}/")]
            if len(blocks) != 1 or int(blocks[0].get("range", 0)) != 1 << max(wide):
                yield f"the memory map of {name} has not the range of its addresses"
            elif self.objects.get(f"memorymap:{stem}") is None:
                yield f"there is no memory map {stem}"
        yield from self._register_problems() if not master else ()

    def _register_problems(self) -> Iterator[str]:
        registers = self.registers()
        offsets = [one["offset"] for one in registers]
        if len(set(offsets)) != len(offsets) or any(one % 4 for one in offsets):
            yield "offsets of registers are not distinct multiples of 4"
        for one in registers:
            bits = [b for f in one["fields"] for b in range(f["first"], f["first"] + f["width"])]
            if len(set(bits)) != len(bits) or any(bit > 31 for bit in bits):
                yield f"fields of {one['name']} overlap"

    # The block design

    def shape(self, cell: str) -> Shape:
        """Return what a cell has."""
        one = self.cells[cell]
        return shape_of(one.core, one.properties, self.packaged)

    def _design_problems(self) -> Iterator[str]:
        yield from self._pin_problems()
        yield from self._interface_problems()
        yield from self._address_problems()
        order = [words[0] for words in self.calls]
        last = [name for name in order if re.match("create_bd|connect|assign|exclude", name)][-1]
        wanted = [last, "validate_bd_design", "save_bd_design", "make_wrapper"]
        places = [len(order) - 1 - order[::-1].index(name) for name in wanted if name in order]
        if len(places) != len(wanted) or places != sorted(places):
            yield "the design is not validated, saved and wrapped after it is complete"
        yield from (f"there is no file {file}" for file in self.files if not file.is_file())

    def _pin_problems(self) -> Iterator[str]:
        drivers = {
            f"/{cell}/{pin}"
            for cell in self.cells
            for pin, direction in self.shape(cell).pins.items()
            if direction == "out"
        } | {f"/{name}" for name, kind in self.pads.items() if kind == ("pin", "I")}
        for cell in self.cells:
            for pin, direction in self.shape(cell).pins.items():
                net = self.nets.get(f"/{cell}/{pin}", set())
                count = len(net & drivers)
                if count > 1 or (direction == "in" and count != 1):
                    yield f"pin {cell}/{pin} has {count} drivers"

    def _interface_problems(self) -> Iterator[str]:
        used = Counter(one for link in self.links for one in link)
        modes: dict[str, str] = {}
        for cell in self.cells:
            for name, (mode, _clock) in self.shape(cell).interfaces.items():
                modes[f"{cell}/{name}"] = mode
        # A port of the design has the mode of the interface inside that it is connected to.
        pads = {name: mode for name, (kind, mode) in self.pads.items() if kind == "interface"}
        for name in [*modes, *pads]:
            if used[name] != 1:
                yield f"interface {name} has {used[name]} connections"
        for first, second in self.links:
            if first in pads:
                if pads[first] != modes.get(second):
                    yield f"{first} and {second} have different modes"
            elif {modes.get(first), modes.get(second)} != {"master", "slave"}:
                yield f"{first} and {second} are not a master and a slave"
            elif not self._clocks(first) & self._clocks(second):
                yield f"{first} and {second} have different clocks"
        for cell, one in self.cells.items():
            delays = {k: v for k, v in one.properties.items() if k.endswith("_DELAY") and v == "1"}
            for key in delays:
                if one.properties.get(key.replace("DELAY", "DEPTH")) != "512":
                    yield f"{cell} needs 512 words for whole bursts"

    def _clocks(self, interface: str) -> set[frozenset[str]]:
        """Return the nets of an interface's clock; a SmartConnect has several."""
        cell, name = interface.split("/")
        clock = self.shape(cell).interfaces[name][1]
        pins = [clock] if clock else [p for p in self.shape(cell).pins if p.startswith("aclk")]
        return {frozenset(self.nets.get(f"/{cell}/{pin}", {pin})) for pin in pins}

    def reached(self, interface: str) -> set[str]:
        """Return the slave interfaces of memories that a master reaches."""
        other = {a: b for a, b in self.links} | {b: a for a, b in self.links}
        if (slave := other.get(interface)) is None or "/" not in slave:
            return set()
        cell, _slash, _name = slave.partition("/")
        if self.cells[cell].core not in ("smartconnect", "axi_data_fifo"):
            return {slave}
        masters = [n for n, (mode, _c) in self.shape(cell).interfaces.items() if mode == "master"]
        return {one for name in masters for one in self.reached(f"{cell}/{name}")}

    def _segments(self, slave: str) -> Iterator[str]:
        cell, name = slave.split("/")
        for segment in self.shape(cell).segments:
            stem = segment.partition("/")[0]
            port = re.fullmatch(r"S_AXI_HP(\d)_FPD", name)
            if stem == name or (port and stem == f"SAXIGP{int(port[1]) + 2}"):
                yield f"{cell}/{segment}"
            elif name == "C0_DDR4_S_AXI":
                yield f"{cell}/{segment}"

    def spaces(self) -> dict[str, str]:
        """Return the master interface of each address space."""
        return {
            f"{cell}/{space}": f"{cell}/{name}"
            for cell in self.cells
            for space, name in self.shape(cell).spaces.items()
        }

    def _address_problems(self) -> Iterator[str]:
        for space, interface in self.spaces().items():
            segments = {one for slave in self.reached(interface) for one in self._segments(slave)}
            own = [one for one in self.assigned if one[0] == space]
            listed = Counter(one[1] for one in own)
            listed.update(segment for name, segment in self.excluded if name == space)
            if set(listed) != segments or any(number != 1 for number in listed.values()):
                yield f"{space} does not list each segment that it reaches once"
            if not own:
                yield f"{space} has no memory"
            for _space, segment, offset, size in own:
                cell, _slash, name = segment.partition("/")
                capacity, base = self.shape(cell).segments.get(name, (0, None))
                if size & (size - 1) or size > capacity:
                    yield f"{segment} has no {size} bytes"
                elif offset % size or base not in (None, offset):
                    yield f"{segment} cannot be at {offset:#x}"
            places = sorted((offset, offset + size) for _s, _segment, offset, size in own)
            if any(end > start for (_a, end), (start, _b) in pairwise(places)):
                yield f"segments of {space} overlap"
            if self.packaged and (
                top := self.packaged.objects.get(f"space:{space.partition('/')[2]}")
            ):
                if any(end > int(top["range"]) for _start, end in places):
                    yield f"{space} is too small"
