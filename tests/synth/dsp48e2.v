// The parts of a DSP48E2 slice that `synth/scripts/xcup_cells.v` uses (AMD UG579, Figure 2-1).
module DSP48E2 #(
  parameter ACASCREG = 1, ADREG = 1, ALUMODEREG = 1, AREG = 1, BCASCREG = 1, BREG = 1,
  parameter CARRYINREG = 1, CARRYINSELREG = 1, CREG = 1, DREG = 1, INMODEREG = 1, MREG = 1,
  parameter OPMODEREG = 1, PREG = 1,
  parameter A_INPUT = "DIRECT", AMULTSEL = "A", BMULTSEL = "B", B_INPUT = "DIRECT",
  parameter PREADDINSEL = "A", USE_MULT = "MULTIPLY", USE_SIMD = "ONE48"
) (
  input CLK, CEM, CEP, RSTM, RSTP, CARRYIN,
  input [29:0] A, ACIN, input [17:0] B, BCIN, input [47:0] C, PCIN, input [26:0] D,
  input [4:0] INMODE, input [3:0] ALUMODE, input [2:0] CARRYINSEL, input [8:0] OPMODE,
  output [47:0] P, PCOUT
);
  // INMODE[2] selects D, INMODE[1] gates A; without AMULTSEL the preadder is bypassed.
  wire [26:0] added = (INMODE[1] ? 27'b0 : A[26:0]) + (INMODE[2] ? D : 27'b0);
  wire [26:0] factor = AMULTSEL == "AD" ? added : A[26:0];
  reg signed [44:0] product;
  reg [47:0] held;
  // X and Y select the product by 01, Z selects PCIN by 001.
  wire [47:0] z = OPMODE[6:4] == 3'b001 ? PCIN : 48'b0;
  wire [47:0] xy = OPMODE[3:0] == 4'b0101 ? 48'(product) : 48'b0;
  always @(posedge CLK) begin
    if (CEM) product <= $signed(factor) * $signed(B);
    if (CEP) held <= z + xy;
  end
  assign P = PREG != 0 ? held : z + xy;
  assign PCOUT = P;
  // Any other use has no model here.
  initial if (MREG != 1 || ADREG != 0 || AREG != 0 || BREG != 0 || DREG != 0) $fatal(1, "registers");
endmodule
