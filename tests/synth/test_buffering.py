import json

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.yosys import run_yosys
from synth.asic import elaborate, map_to_cells
from synth.buffering import FAN_OUT, buffer_modules
from synth.liberty import find_library
from synth.mapped_design import Netlist
from tests.synth.designs import Adder, emit

TOP = "design_under_test"
COPIES = 70


class Broadcast(Unit):
    """One operand for many modules: its register and a port drive hundreds of pins."""

    a: Signal
    b: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(4), "result": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = Signal(4)
        m.d.sync += a.eq(self.a)
        total: Signal = a
        for index in range(COPIES):
            m.submodules[f"adder_{index}"] = adder = Adder(width=4)
            m.d.comb += [adder.a.eq(a ^ index % 16), adder.b.eq(self.b)]
            chained = Signal(4)
            m.d.sync += chained.eq(adder.result ^ total)
            total = chained
        m.d.comb += self.result.eq(total)
        return m


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    directory = tmp_path_factory.mktemp("broadcast")
    files = emit(Broadcast(), directory / "rtl")
    design = elaborate(files, TOP, directory / "synth", flatten=False)
    return map_to_cells(design, find_library())


def most_pins(netlist: Netlist) -> int:
    """Return the most input pins on a net of the flat netlist, clocks apart."""
    passes = [f"read_json {netlist.stem}.json", f"hierarchy -top {TOP}", "flatten -noscopeinfo"]
    run_yosys([*passes, "write_json flat.json"], directory=netlist.directory)
    module = json.loads((netlist.directory / "flat.json").read_text())["modules"]
    pins: dict[int, int] = {}
    for cell in module[netlist.top]["cells"].values():
        for pin in netlist.library.cells[cell["type"]].inputs:
            (bit,) = cell["connections"][pin.name]
            if not pin.clock and isinstance(bit, int):
                pins[bit] = pins.get(bit, 0) + 1
    return max(pins.values())


def test_no_net_drives_more_than_a_few_pins(netlist: Netlist) -> None:
    if not netlist.library.buffer:
        pytest.skip("the library has no buffer")
    assert most_pins(netlist) <= FAN_OUT


def test_buffers_are_counted(netlist: Netlist) -> None:
    assert netlist.library.buffer is not None
    top = next(module for module in netlist.modules if module.name == TOP)
    mapped = json.loads((netlist.directory / f"{netlist.stem}.mapped.json").read_text())
    added = [name for name in mapped["modules"][TOP]["cells"] if "fan_out_buffer" in name]
    assert 8 * COPIES // FAN_OUT <= len(added)
    assert top.cells == sum(
        cell["type"] in netlist.library.cells for cell in mapped["modules"][TOP]["cells"].values()
    )
    assert buffer_modules(mapped, netlist.library) == 0
