"""A behavioural eDRAM for the swap point, whose words lose bits unless they are rewritten."""

from collections.abc import Sequence
from pathlib import Path

from amaranth.utils import ceil_log2

from golden.kelle.edram.kv_edram import HASH, Retention
from hdl.paths import replace_text


def retention_module(name: str, *, depth: int, width: int, retention: Retention) -> str:
    """Return Verilog that replaces a memory's emitted module in a simulation.

    Parameters
    ----------
    name : str
        Name of the memory's module; it writes whole words.
    depth, width : int
        The memory's dimensions.
    retention : Retention
        Age limit, rate and seed.
    """
    top = width - 1
    address = ceil_log2(depth)
    return f"""
module {name}(
  input clk, input rst,
  input read_enable, input [{address - 1}:0] read_address, output reg [{top}:0] read_data,
  input write_enable, input [{address - 1}:0] write_address, input [{top}:0] write_data);
  reg [{top}:0] words [0:{depth - 1}];
  reg [31:0] written [0:{depth - 1}];
  reg [31:0] now, start, mixed;
  reg [63:0] wide;
  integer i;
  always @(posedge clk) begin
    now <= rst ? 0 : now + 1;
    if (read_enable) begin
      wide = 64'd0 | words[read_address];
      read_data <= words[read_address];
      if (now - written[read_address] > {retention.cycles}) begin
        start = (wide[31:0] ^ wide[63:32]) * 32'd{HASH[0]}
              + read_address * 32'd{HASH[1]} + 32'd{retention.seed};
        for (i = 0; i < {width}; i = i + 1) begin
          mixed = (start + i) * 32'd{HASH[2]};
          mixed = (mixed ^ (mixed >> 15)) * 32'd{HASH[0]};
          if ({{1'b0, mixed[31:16]}} < 17'd{retention.limit})
            wide[i] = ~wide[i];
        end
        read_data <= wide[{top}:0];
      end
    end
    if (write_enable) begin
      words[write_address] <= write_data;
      written[write_address] <= now;
    end
  end
endmodule
"""


def with_fading_banks(
    files: Sequence[Path], folder: Path, *, depth: int, width: int, retention: Retention
) -> list[Path]:
    """Return a design's Verilog with the eDRAM's memory replaced by one whose words lose bits.

    The replacement is written to a separate folder; the emitted files are not changed.

    Parameters
    ----------
    files : Sequence[Path]
        What was emitted, with one memory of these dimensions.
    folder : Path
        Folder of the replacement.
    depth, width : int
        The memory's dimensions.
    retention : Retention
        How words fade.
    """
    verilog = [file for file in files if file.suffix == ".v"]
    (bank,) = (file for file in verilog if file.stem.startswith(f"memory_{depth}_{width}_"))
    fading = folder / bank.name
    replace_text(fading, retention_module(bank.stem, depth=depth, width=width, retention=retention))
    return [fading if file == bank else file for file in verilog]
