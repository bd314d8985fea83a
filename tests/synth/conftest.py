"""A library with a buffer, and a small layout, which each file of tests makes for itself."""

import pytest

from synth.asic import elaborate, map_to_cells
from synth.layout.flow import Layout, find_lef, lay_out
from synth.layout.lef import Lef
from synth.liberty import Library, find_library
from synth.mapped_design import Netlist

SOURCE = """
module counter(input clk, input rst, input [3:0] d, output reg [3:0] q, output one, output same);
  assign one = 1'b1;
  assign same = q[0];
  reg [3:0] memory [0:3];
  reg [3:0] word;
  always @(posedge clk) begin
    if (rst) q <= 0; else q <= q + word;
    memory[q[1:0]] <= d;
    word <= memory[d[1:0]];
  end
endmodule
"""


@pytest.fixture(scope="module")
def library() -> Library:
    library = find_library()
    if not library.buffer:
        pytest.skip("the library has no buffer")
    return library


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    directory = tmp_path_factory.mktemp("counter")
    (directory / "counter.v").write_text(SOURCE)
    return map_to_cells(
        elaborate([directory / "counter.v"], "counter", directory), find_library(None)
    )


@pytest.fixture(scope="module")
def lef() -> Lef:
    return find_lef(None, None)


@pytest.fixture(scope="module")
def layout(netlist: Netlist, lef: Lef, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    directory = tmp_path_factory.mktemp("layout")
    return lay_out(netlist, lef, directory, density=0.6, facts={"top": "counter"})
