import json
import subprocess
from pathlib import Path

import pytest

from hdl.arith.paired_dot_product import ProductCascade
from hdl.catalog import entry_named
from hdl.emit import Emission, Port, write_verilog
from hdl.errors import UserError
from hdl.target import Target
from hdl.yosys import run_yosys
from synth import fpga_mapping
from synth.fpga import DEVICES, find_device, place_and_route
from synth.harness import HARNESS, write_harness
from testbenches.simulators import environment, verilator_executable
from tests.synth.designs import Counter, Pair


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UserError, match=r"DEVICE must be one of ecp5-85k, .*xcup, not 'stratix'"):
        find_device("stratix")


def test_counts_are_of_the_design_alone(tmp_path: Path) -> None:
    emission = Emission(top=Counter(width=8, memory=True), name="counter")
    files = write_verilog(emission, tmp_path / "rtl")
    result = place_and_route(
        [file for file in files if file.suffix == ".v"],
        "counter",
        emission.modules[-1].ports,
        DEVICES["xcup"],
        tmp_path,
        preset="tiny",
    )
    # Eight bits of count; the memory is LUT RAM with its read register.
    assert result.counts["ff"] == 16
    assert result.counts["dsp"] == result.counts["bram"] == 0
    assert result.counts["lut"] >= 8
    entry = json.loads((tmp_path / "fpga.json").read_text())["devices"]["xcup"]
    assert entry["ff"] == 16 and entry["fmax_mhz"] is None
    assert "no timing" in entry["method"]


def test_an_ecp5_design_is_placed_and_routed(tmp_path: Path) -> None:
    emission = Emission(top=Counter(width=8), name="counter")
    files = write_verilog(emission, tmp_path / "rtl")
    result = place_and_route(
        [file for file in files if file.suffix == ".v"],
        "counter",
        emission.modules[-1].ports,
        DEVICES["ecp5-45k"],
        tmp_path,
    )
    assert result.fmax_mhz is not None and 50 < result.fmax_mhz < 800
    assert result.counts["ff"] == 8


@pytest.mark.parametrize("top", ["kv_edram", "refresh_controller"])
def test_memories_and_nets_that_yosys_stumbles_over_are_mapped(top: str, tmp_path: Path) -> None:
    """A net that ABC9 maps in parts; a memory too deep for the LUT RAM that would be chosen."""
    emission = Emission(top=entry_named(top).build("smollm2"), name=top, target=Target.FPGA)
    files = [file for file in write_verilog(emission, tmp_path / "rtl") if file.suffix == ".v"]
    ports = emission.modules[-1].ports
    result = place_and_route(files, top, ports, DEVICES["xcup"], tmp_path)
    assert result.counts["bram"] > 0


def test_a_large_design_is_mapped_module_by_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two counters in a pair: each is mapped by itself, and both are counted."""
    emission = Emission(top=Pair(width=8), name="pair")
    files = [file for file in write_verilog(emission, tmp_path / "rtl") if file.suffix == ".v"]
    counts: list[dict[str, float]] = []
    methods: list[str] = []
    dissolved: list[bool] = []
    for limit in (fpga_mapping.FLATTEN_LIMIT, 1):
        monkeypatch.setattr(fpga_mapping, "FLATTEN_LIMIT", limit)
        ports = emission.modules[-1].ports
        result = place_and_route(files, "pair", ports, DEVICES["xcup"], tmp_path)
        counts.append(result.counts)
        methods.append(result.method)
        log = (tmp_path / "fpga" / "xcup" / "pair.log").read_text()
        dissolved.append("Executing FLATTEN pass" in log)
    assert dissolved == [True, False]
    assert counts[0]["ff"] == counts[1]["ff"] > 0
    assert "as a whole" in methods[0] and "module by module" in methods[1]


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 1), (1, 1), (7, 3)])
def test_the_harness_keeps_every_port(inputs: int, outputs: int, tmp_path: Path) -> None:
    ports = [Port(("clk",), "input", 1), Port(("rst",), "input", 1)]
    ports += [Port((f"i{n}",), "input", n + 1) for n in range(inputs)]
    ports += [Port((f"o{n}",), "output", n + 1) for n in range(outputs)]
    (tmp_path / "harness.v").write_text(write_harness("box", ports))
    declared = ", ".join(f"{port.direction} [{port.width - 1}:0] {port.name}" for port in ports)
    (tmp_path / "box.v").write_text(f"(* blackbox *) module box({declared}); endmodule\n")
    run_yosys(
        [
            "read_verilog box.v harness.v",
            f"hierarchy -check -top {HARNESS}",
            "proc",
            "opt -full",
            "json -o harness.json",
        ],
        directory=tmp_path,
    )
    module = json.loads((tmp_path / "harness.json").read_text())["modules"][HARNESS]
    (box,) = [cell for cell in module["cells"].values() if cell["type"] == "box"]
    assert set(box["connections"]) == {port.name for port in ports}
    bits = [bit for name, net in box["connections"].items() for bit in net]
    assert len(bits) == len(set(bits)) == sum(port.width for port in ports)
    assert all(isinstance(bit, int) for bit in bits), "a port is tied to a constant"


BENCH = """
module bench(input clk);
  reg enable;
  reg [63:0] x, a, b;
  wire [36:0] expected, found;
  product_cascade_8_2_1 source(.clk, .rst(1'b0), .enable, .x, .a, .b, .result(expected));
  mapped slices(.clk, .rst(1'b0), .enable, .x, .a, .b, .result(found));
  // A byte is an extreme in half of the cases.
  function [7:0] byte_of(input [31:0] random);
    byte_of = random[8] ? (random[9] ? 8'h80 : 8'h7f) : random[7:0];
  endfunction
  integer cycle = 0, i;
  always @(posedge clk) begin
    cycle <= cycle + 1;
    enable <= cycle < 4 || $urandom % 4 != 0;
    for (i = 0; i < 8; i = i + 1) begin
      x[8*i+:8] <= byte_of($urandom);
      a[8*i+:8] <= byte_of($urandom);
      b[8*i+:8] <= byte_of($urandom);
    end
    if (cycle % 64 == 5) {x, a, b} <= {24{8'h80}};
    if (cycle > 4 && expected !== found) begin
      $display("cycle %0d: %h, not %h", cycle, found, expected);
      $finish;
    end
    if (cycle == 20000) begin
      $display("equal");
      $finish;
    end
  end
endmodule
"""

MAIN = """
#include "Vbench.h"
int main() {
  Vbench bench;
  for (int edge = 0; !Verilated::gotFinish(); edge++) bench.clk = edge & 1, bench.eval();
}
"""


def test_slices_of_a_cascade_equal_their_source(tmp_path: Path) -> None:
    """Simulate the cells that replace `ProductCascade`, with a model of a slice."""
    unit = ProductCascade(count=8, stages=2, enable=True)
    (source,) = (
        file for file in write_verilog(Emission(top=unit), tmp_path) if file.suffix == ".v"
    )
    wrapper = "module mapped(input clk, rst, enable, input [63:0] x, a, b, output [36:0] result);"
    wires = ", ".join(f".{name}({name})" for name in "clk rst enable x a b result".split())
    wrapper += f"\n{unit.module_name} cells({wires});\nendmodule\n"
    (tmp_path / "mapped.sv").write_text(wrapper)
    passes = [f"read_verilog -sv {source}", "read_verilog -sv mapped.sv"]
    passes += [f"techmap -map {fpga_mapping.CELLS}", f"delete {unit.module_name}"]
    run_yosys([*passes, "write_verilog cells.v"], directory=tmp_path)
    (tmp_path / "bench.sv").write_text(BENCH)
    (tmp_path / "main.cpp").write_text(MAIN)
    model = Path(__file__).with_name("dsp48e2.v")
    names = [source, "cells.v", model, "bench.sv", "main.cpp"]
    with environment():
        options = ["--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "--top-module", "bench"]
        subprocess.run([verilator_executable(), *options, *names], cwd=tmp_path, check=True)
        found = subprocess.run(
            ["obj_dir/Vbench"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert "equal" in found.stdout, found.stdout
