// Units that are mapped to cells of an UltraScale+ device by hand. Yosys' own mapping to DSP48E2
// uses the multiplier of a slice, but not its preadder, its adder and its registers.

// `ProductCascade`: eight slices, which add their products along the cascade PCOUT to PCIN.
module product_cascade_8_2_1(clk, rst, enable, x, a, b, result);
  input clk, rst, enable;
  input [63:0] x, a, b;
  output [36:0] result;
  // The sum before each slice, and after the last one.
  wire [48*9-1:0] sums;
  assign sums[47:0] = 48'b0;
  wire [48*8-1:0] p;
  assign result = p[48*7+:37];
  genvar i;
  generate
    for (i = 0; i < 8; i = i + 1) begin : slice
      DSP48E2 #(
        .ACASCREG(0), .ADREG(0), .A_INPUT("DIRECT"), .ALUMODEREG(0), .AMULTSEL("AD"), .AREG(0),
        .BCASCREG(0), .BMULTSEL("B"), .BREG(0), .B_INPUT("DIRECT"), .CARRYINREG(0),
        .CARRYINSELREG(0), .CREG(0), .DREG(0), .INMODEREG(0), .MREG(1), .OPMODEREG(0),
        .PREADDINSEL("A"), .PREG(i == 7), .USE_MULT("MULTIPLY"), .USE_SIMD("ONE48")
      ) dsp (
        .CLK(clk), .CEM(enable), .CEP(enable), .RSTM(1'b0), .RSTP(1'b0),
        // The preadder adds D to A; A is a multiple of 2^18.
        .A({{4{a[8*i+7]}}, a[8*i+:8], 18'b0}),
        .D({{19{b[8*i+7]}}, b[8*i+:8]}),
        .B({{10{x[8*i+7]}}, x[8*i+:8]}),
        .C(48'b0), .INMODE(5'b00100), .ALUMODE(4'b0000), .CARRYIN(1'b0), .CARRYINSEL(3'b000),
        // X and Y select the product; Z selects 0 in the first slice, PCIN in the others.
        .OPMODE(i == 0 ? 9'b000000101 : 9'b000010101),
        .ACIN(30'b0), .BCIN(18'b0), .PCIN(sums[48*i+:48]), .PCOUT(sums[48*(i+1)+:48]),
        .P(p[48*i+:48])
      );
    end
  endgenerate
endmodule
