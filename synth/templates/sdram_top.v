// The top of a board with SDRAM: {logic}, LiteDRAM's core, and the clock of the chip.

module {name}(clk, rst, serial_in, serial_out, leds, wifi_gpio0, sdram_clk, sdram_cke, sdram_csn,
              sdram_rasn, sdram_casn, sdram_wen, sdram_a, sdram_ba, sdram_dqm, sdram_d);
  input clk, rst, serial_in;
  output serial_out, wifi_gpio0;
  output [2:0] leds;
  output sdram_clk, sdram_cke, sdram_csn, sdram_rasn, sdram_casn, sdram_wen;
  output [12:0] sdram_a;
  output [1:0] sdram_ba, sdram_dqm;
  inout [15:0] sdram_d;

  wire reset, stb, ack, cmd_valid, cmd_ready, cmd_we, wdata_valid, wdata_ready, rdata_valid;
  wire [29:0] adr;
  wire [31:0] dat_w;
  wire [{word_bits}-1:0] cmd_addr;
  wire [{data_bytes}*8-1:0] wdata_data, rdata_data;
  wire [{data_bytes}-1:0] wdata_we;
  wire [{core_word_bits}-1:0] word = cmd_addr;

  {logic} logic_part (
    .clk(clk), .rst(rst), .serial_in(serial_in), .serial_out(serial_out), .leds(leds),
    .wifi_gpio0(wifi_gpio0), .memory_reset(reset),
    .control_stb(stb), .control_ack(ack), .control_adr(adr), .control_dat_w(dat_w),
    .native_cmd_valid(cmd_valid), .native_cmd_ready(cmd_ready), .native_cmd_we(cmd_we),
    .native_cmd_addr(cmd_addr), .native_wdata_valid(wdata_valid),
    .native_wdata_ready(wdata_ready), .native_wdata_data(wdata_data),
    .native_wdata_we(wdata_we), .native_rdata_valid(rdata_valid), .native_rdata_data(rdata_data)
  );

  {core} core (
    .clk(clk), .rst(reset), .user_clk(), .user_rst(), .init_done(), .init_error(),
    .wb_ctrl_adr(adr), .wb_ctrl_dat_w(dat_w), .wb_ctrl_dat_r(), .wb_ctrl_sel(4'b1111),
    .wb_ctrl_cyc(stb), .wb_ctrl_stb(stb), .wb_ctrl_ack(ack), .wb_ctrl_we(1'b1),
    .wb_ctrl_cti(3'b000), .wb_ctrl_bte(2'b00), .wb_ctrl_err(),
    .user_port_native_cmd_valid(cmd_valid), .user_port_native_cmd_ready(cmd_ready),
    .user_port_native_cmd_we(cmd_we),
    .user_port_native_cmd_addr(word),
    .user_port_native_wdata_valid(wdata_valid), .user_port_native_wdata_ready(wdata_ready),
    .user_port_native_wdata_data(wdata_data), .user_port_native_wdata_we(wdata_we),
    .user_port_native_rdata_valid(rdata_valid), .user_port_native_rdata_ready(1'b1),
    .user_port_native_rdata_data(rdata_data),
    .sdram_cke(sdram_cke), .sdram_cs_n(sdram_csn), .sdram_ras_n(sdram_rasn),
    .sdram_cas_n(sdram_casn), .sdram_we_n(sdram_wen), .sdram_a(sdram_a), .sdram_ba(sdram_ba),
    .sdram_dm(sdram_dqm), .sdram_dq(sdram_d)
  );

  // The pins change at the rising edge of clk. The chip's clock is inverted, so that the chip
  // samples in the middle of a cycle; the register of the pin has the delay of the other pins.
  ODDRX1F clock_register (.SCLK(clk), .RST(1'b0), .D0(1'b0), .D1(1'b1), .Q(sdram_clk));
endmodule
