"""A behavioural eDRAM for the swap point: words that fade unless they are written again."""

from amaranth.utils import ceil_log2

from golden.kelle.edram.kv_edram import HASH, Retention


def retention_module(name: str, *, depth: int, width: int, retention: Retention) -> str:
    """Return Verilog that stands for a memory's emitted module in a simulation.

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
