"""The LiteX core connects each port of its unit, and joins the bus of a SoC."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from hdl.catalog import entry_named
from hdl.emit import Port
from synth.litex import litex_core
from tests.synth.unit_ports import ports_of

TINY = entry_named("veda_axi").parameters("tiny")
STREAM = [
    Port(("clk",), "input", 1),
    Port(("rst",), "input", 1),
    Port(("numbers", "payload"), "input", 9),
    Port(("numbers", "valid"), "input", 1),
    Port(("numbers", "ready"), "output", 1),
    Port(("busy",), "output", 1),
]


def core_file(ports: list[Port]) -> str:
    return litex_core("unit", 'doubles "each" value', ports, ["part.v", "unit.v"])


def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Substitute the classes of LiteX and Migen; return the instances that are built."""
    instances: list[tuple[str, dict[str, Any]]] = []
    module = type("LiteXModule", (), {"specials": []})

    def instance(name: str, **connections: Any) -> list[str]:
        instances.append((name, connections))
        return [name]

    names: dict[str, dict[str, Any]] = {
        "litex.gen": {"LiteXModule": module},
        "litex.soc.integration.soc": {"SoCRegion": MagicMock()},
        "litex.soc.interconnect": {"axi": MagicMock(), "stream": MagicMock()},
        "migen": {
            **dict.fromkeys(("Cat", "ClockSignal", "ResetSignal", "Signal"), MagicMock()),
            "Instance": instance,
        },
    }
    for name, content in names.items():
        fake = ModuleType(name)
        vars(fake).update(content)
        monkeypatch.setitem(sys.modules, name, fake)
    return instances


@pytest.mark.parametrize(
    "ports", [STREAM, ports_of("veda_axi", TINY)], ids=["stream", "accelerator"]
)
def test_each_port_is_connected_once(ports: list[Port], monkeypatch: pytest.MonkeyPatch) -> None:
    instances = played(monkeypatch)
    names: dict[str, Any] = {"__file__": "core.py"}
    exec(compile(core_file(ports), "core.py", "exec"), names)
    added: list[str] = []
    names["Core"](SimpleNamespace(add_source=added.append))
    ((name, connections),) = instances
    assert name == "unit"
    assert set(connections) == {f"{port.direction[0]}_{port.name}" for port in ports}
    assert [Path(file).name for file in added] == ["part.v", "unit.v"]


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
def test_litex_builds_a_soc_with_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers and masters join the bus of LiteX."""
    generic = import_module("litex.build.generic_platform")
    lattice = import_module("litex.build.lattice")
    soc_core = import_module("litex.soc.integration.soc_core")
    genlib = import_module("migen.genlib.io")
    (tmp_path / "unit_litex.py").write_text(core_file(ports_of("veda_axi", TINY)))
    monkeypatch.syspath_prepend(tmp_path)
    unit_litex = import_module("unit_litex")
    clock = [("clk", 0, generic.Pins("G2"), generic.IOStandard("LVCMOS33"))]
    platform = lattice.LatticePlatform("LFE5U-85F-6BG381C", clock, toolchain="trellis")
    soc = soc_core.SoCMini(platform, 25e6)
    soc.crg = genlib.CRG(platform.request("clk"))
    soc.add_ram("main_ram", 0x4000_0000, 0x1_0000)
    unit_litex.add_to(soc)
    soc.finalize()
    assert len(soc.bus.masters) == len(unit_litex.MASTERS) == len(TINY.ports)
    assert "unit unit" in str(platform.get_verilog(soc))
