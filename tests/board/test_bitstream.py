"""Packing of small designs with the ports of a board."""

import json
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.bitstream import BOARDS, BoardVerilog, build_bitstream

BOARD = BOARDS["ulx3s"]

STUB = """
module stub (input clk, input rst, input serial_in, output serial_out,
             output [2:0] leds, output wifi_gpio0);
  reg [31:0] count, quotient;
  always @(posedge clk) begin
    count <= rst ? 0 : {{count[30:0], serial_in}};
    quotient <= {expression};
  end
  assign serial_out = ^quotient;
  assign leds = count[31:29];
  assign wifi_gpio0 = 1;
endmodule
"""


def stub(folder: Path, expression: str) -> BoardVerilog:
    """Write a design that computes an expression in one cycle."""
    file = folder / "stub.v"
    file.write_text(STUB.format(expression=expression))
    return BoardVerilog(logic=(file,))


@pytest.mark.full
def test_bitstream_has_figures_of_its_design(tmp_path: Path) -> None:
    words: list[str] = []
    result = build_bitstream(
        stub(tmp_path, "count + 5"),
        "stub",
        BOARD,
        tmp_path,
        about={"top": "stub"},
        progress=words.append,
    )
    assert result.file == tmp_path / "stub.bit"
    # The preamble of a bitstream of the family, after a comment.
    assert b"\xff\xff\xbd\xb3" in result.file.read_bytes()[:200]
    values = json.loads(result.figures.read_text())
    assert values["bytes"] == result.file.stat().st_size > 10_000
    assert values["ff"] == result.counts["ff"] >= 32
    assert values["fmax_mhz"] > values["clock_mhz"] == 25
    assert values["top"] == "stub" and len(words) == 3


@pytest.mark.full
def test_slow_design_has_no_bitstream(tmp_path: Path) -> None:
    """Eight products in one cycle miss the clock; the bitstream of an earlier run is removed."""
    (tmp_path / "stub.bit").write_bytes(b"earlier")
    verilog = stub(tmp_path, "(" * 8 + "quotient" + " * count ^ count)" * 8)
    with pytest.raises(UserError, match=r"stub must reach the 25 MHz of ulx3s .* no bitstream"):
        build_bitstream(verilog, "stub", BOARD, tmp_path, about={})
    assert not (tmp_path / "stub.bit").exists()
