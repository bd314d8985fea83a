// Cells of the ECP5 that a board with SDRAM instantiates, in simulation.

// Flip-flop with an asynchronous set.
module FD1S3BX(input D, input CK, input PD, output reg Q);
  always @(posedge CK, posedge PD) Q <= PD | D;
endmodule

// Flip-flops of a pin.
module IFS1P3BX(input D, input SP, input SCLK, input PD, output reg Q);
  always @(posedge SCLK, posedge PD)
    if (PD) Q <= 1;
    else if (SP) Q <= D;
endmodule

module OFS1P3BX(input D, input SP, input SCLK, input PD, output reg Q);
  always @(posedge SCLK, posedge PD)
    if (PD) Q <= 1;
    else if (SP) Q <= D;
endmodule

// Two bits per cycle: D0 while the clock is 1, then D1.
module ODDRX1F(input D0, input D1, input SCLK, input RST, output Q);
  reg first, second;
  always @(posedge SCLK) begin
    first <= D0 & ~RST;
    second <= D1 & ~RST;
  end
  assign Q = SCLK ? first : second;
endmodule

module TRELLIS_IO #(parameter DIR = "BIDIR") (inout B, input I, input T, output O);
  assign B = T ? 1'bz : I;
  assign O = B;
endmodule
