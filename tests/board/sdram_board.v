// A packed top with the chip at its pins.

module sdram_board(
    input clk, input rst, input serial_in, output serial_out, output [2:0] leds,
    output wifi_gpio0, output [31:0] violations, output [31:0] refreshes, output [31:0] reads,
    output [31:0] writes
);
  wire sdram_clk, sdram_cke, sdram_csn, sdram_rasn, sdram_casn, sdram_wen;
  wire [12:0] sdram_a;
  wire [1:0] sdram_ba, sdram_dqm;
  wire [15:0] sdram_d;

  packed_top board (
    .clk(clk), .rst(rst), .serial_in(serial_in), .serial_out(serial_out), .leds(leds),
    .wifi_gpio0(wifi_gpio0), .sdram_clk(sdram_clk), .sdram_cke(sdram_cke), .sdram_csn(sdram_csn),
    .sdram_rasn(sdram_rasn), .sdram_casn(sdram_casn), .sdram_wen(sdram_wen), .sdram_a(sdram_a),
    .sdram_ba(sdram_ba), .sdram_dqm(sdram_dqm), .sdram_d(sdram_d)
  );
  sdram_chip chip (
    .clk(sdram_clk), .cke(sdram_cke), .cs_n(sdram_csn), .ras_n(sdram_rasn), .cas_n(sdram_casn),
    .we_n(sdram_wen), .a(sdram_a), .ba(sdram_ba), .dqm(sdram_dqm), .dq(sdram_d), .restarts(rst),
    .violations(violations), .refreshes(refreshes), .reads(reads), .writes(writes)
  );
endmodule
