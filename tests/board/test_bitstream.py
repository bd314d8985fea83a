"""Packing of small designs with the ports of a board."""

import json
from pathlib import Path

import pytest

from hdl.board.board_parameters import SDRAM_BYTES, BoardParameters
from hdl.catalog import entry_named
from hdl.errors import UserError
from synth.bitstream import BOARDS, BoardVerilog, build_bitstream
from synth.sdram import write_core, write_top

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

SDRAM_STUB = """
module stub_logic (input clk, input rst, input serial_in, output serial_out, output [2:0] leds,
                   output wifi_gpio0, output memory_reset, output control_stb, input control_ack,
                   output [29:0] control_adr, output [31:0] control_dat_w, output native_cmd_valid,
                   input native_cmd_ready, output native_cmd_we, output [21:0] native_cmd_addr,
                   output native_wdata_valid, input native_wdata_ready,
                   output [63:0] native_wdata_data, output [7:0] native_wdata_we,
                   input native_rdata_valid, input [63:0] native_rdata_data);
  reg [63:0] bits;
  always @(posedge clk) begin
    bits <= {bits[62:0], serial_in ^ control_ack ^ native_cmd_ready ^ native_wdata_ready};
    if (native_rdata_valid) bits <= bits ^ native_rdata_data;
  end
  assign serial_out = bits[63];
  assign leds = bits[62:60];
  assign wifi_gpio0 = 1;
  assign memory_reset = rst;
  assign {control_stb, control_adr, control_dat_w} = bits;
  assign {native_cmd_valid, native_cmd_we, native_cmd_addr} = bits;
  assign {native_wdata_valid, native_wdata_we} = bits[40:32];
  assign native_wdata_data = bits;
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
def test_core_and_pins_of_the_sdram_are_placed_and_routed(tmp_path: Path) -> None:
    """Small logic at LiteDRAM's core: the registers of the pins are those of the device."""
    parameters = BoardParameters(
        shell=entry_named("veda_axi").parameters("tiny"), sdram=True, memory_bytes=SDRAM_BYTES
    )
    file = tmp_path / "stub_logic.v"
    file.write_text(SDRAM_STUB)
    core = write_core(tmp_path, parameters.shell.data_bytes, BOARD.clock_mhz)
    top = write_top(tmp_path, "stub", "stub_logic", parameters)
    verilog = BoardVerilog(logic=(file,), sdram=(core, top))
    result = build_bitstream(verilog, "stub", BOARD, tmp_path, about={})
    values = json.loads(result.figures.read_text())
    assert values["fmax_mhz"] > 25 and "litedram" in values["tools"]["sdram"]
    # Commands, masks and data have a register in each pin, the clock two.
    assert values["cells"]["ODDRX1F"] == 1 and values["cells"]["TRELLIS_IO"] == 16


@pytest.mark.full
def test_slow_design_has_no_bitstream(tmp_path: Path) -> None:
    """Eight products in one cycle miss the clock; the bitstream of an earlier run is removed."""
    (tmp_path / "stub.bit").write_bytes(b"earlier")
    verilog = stub(tmp_path, "(" * 8 + "quotient" + " * count ^ count)" * 8)
    with pytest.raises(UserError, match=r"stub must reach the 25 MHz of ulx3s .* no bitstream"):
        build_bitstream(verilog, "stub", BOARD, tmp_path, about={})
    assert not (tmp_path / "stub.bit").exists()
