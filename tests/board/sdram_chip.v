// MT48LC16M16A2, an SDR SDRAM of 4 banks x 8192 rows x 512 columns x 16 bits, that counts
// violations of its data sheet's rules. Only what a controller with bursts of one word uses is
// modelled: no self-refresh, no power-down, no suspended clock, no burst stop.
//
// Times in cycles are those of the data sheet at 25 MHz, rounded up.
//
// `restarts` is no pin: while it is 1, the system is reset, and the start sequence must follow, as
// after power-up. The content is kept, which no chip guarantees without refreshes.

module sdram_chip(
    input clk, input cke, input cs_n, input ras_n, input cas_n, input we_n,
    input [12:0] a, input [1:0] ba, input [1:0] dqm, inout [15:0] dq,
    input restarts, output reg [31:0] violations, output reg [31:0] refreshes,
    output reg [31:0] reads, output reg [31:0] writes
);
  localparam START = 2500;        // 100 us without a command
  localparam RP = 1, RCD = 1;     // 20 ns
  localparam RAS = 2;             // 44 ns
  localparam RC = 2, RFC = 2;     // 66 ns
  localparam RAS_MOST = 3000;     // 120 us
  localparam WR = 1;              // 15 ns
  localparam MRD = 2;
  localparam REFI = 196;          // 64 ms / 8192 = 7.8125 us
  localparam LATENCY = 2;

  localparam [2:0] MODE = 3'b000, REFRESH = 3'b001, PRECHARGE = 3'b010, ACTIVATE = 3'b011,
                   WRITE = 3'b100, READ = 3'b101, STOP = 3'b110, NOTHING = 3'b111;

  reg [15:0] words [0:(1 << 24) - 1];

  // Cycle numbers of the last command of each kind; a large age after a start.
  integer now, quiet, last_refresh, last_mode;
  integer opened [0:3], closed [0:3], wrote [0:3];
  reg [3:0] open;
  reg [12:0] row [0:3];
  // Steps of the start sequence: 0 pause, 1 precharged, 2 two refreshes, 3 mode is loaded.
  reg [1:0] started;
  integer start_refreshes;
  reg restarted;

  wire [2:0] command = cs_n ? NOTHING : {ras_n, cas_n, we_n};
  wire [23:0] place = {row[ba], ba, a[8:0]};

  // Data of a read are driven from LATENCY - 1 to LATENCY cycles after the command.
  reg coming, driven;
  reg [15:0] word, out;
  reg [1:0] masked, masked_now;
  assign dq[7:0] = driven & ~masked_now[0] ? out[7:0] : 8'hzz;
  assign dq[15:8] = driven & ~masked_now[1] ? out[15:8] : 8'hzz;

  task broken(input [8*40-1:0] rule);
    begin
      violations = violations + 1;
      if (violations < 20) $display("sdram_chip, cycle %0d, bank %0d: %0s", now, ba, rule);
    end
  endtask

  task close(input integer bank, input integer when);
    begin
      if (open[bank]) begin
        if (when - opened[bank] < RAS) broken("tRAS");
        if (when - wrote[bank] < WR) broken("tWR");
        if (when - opened[bank] > RAS_MOST) broken("longest tRAS");
        closed[bank] = when;
      end
      open[bank] = 0;
    end
  endtask

  integer bank;
  initial begin
    violations = 0;
    refreshes = 0;
    reads = 0;
    writes = 0;
    now = 0;
    restarted = 1;
    coming = 0;
    driven = 0;
  end

  always @(posedge clk) begin
    now = now + 1;
    if (restarts | restarted) begin
      started = 0;
      start_refreshes = 0;
      quiet = 0;
      open = 0;
      last_refresh = now - RFC;
      last_mode = now - MRD;
      for (bank = 0; bank < 4; bank = bank + 1) begin
        opened[bank] = now - RC;
        closed[bank] = now - RP;
        wrote[bank] = now - WR;
      end
      restarted = 0;
    end
    driven <= coming;
    out <= word;
    // The mask of a read has a latency of two cycles.
    masked <= dqm;
    masked_now <= masked;
    coming <= 0;
    quiet = quiet + 1;
    if (!cke & !restarts) broken("the clock is disabled");
    if (command != NOTHING & !restarts) begin
      if (started == 0 & quiet < START) broken("a command in the start pause");
      if (now - last_mode < MRD) broken("tMRD");
      if (now - last_refresh < RFC) broken("tRFC");
      case (command)
        MODE: begin
          if (started < 2) broken("the mode precedes the refreshes");
          if (open != 0) broken("the mode with an open row");
          for (bank = 0; bank < 4; bank = bank + 1) if (now - closed[bank] < RP) broken("tRP");
          if ({ba, a} != {8'b0, 3'd2, 4'b0000}) broken("the mode is another one");
          started = 3;
          last_mode = now;
        end
        REFRESH: begin
          if (started == 0) broken("a refresh precedes the precharge");
          if (open != 0) broken("a refresh with an open row");
          for (bank = 0; bank < 4; bank = bank + 1) if (now - closed[bank] < RP) broken("tRP");
          if (started == 3) refreshes = refreshes + 1;
          start_refreshes = start_refreshes + 1;
          if (started == 1 & start_refreshes == 2) started = 2;
          last_refresh = now;
        end
        PRECHARGE: begin
          for (bank = 0; bank < 4; bank = bank + 1)
            if (a[10] | bank == ba) close(bank, now);
          if (started == 0 & a[10]) started = 1;
        end
        ACTIVATE: begin
          if (started != 3) broken("an access precedes the mode");
          if (open[ba]) broken("the row is open");
          if (now - closed[ba] < RP) broken("tRP");
          if (now - opened[ba] < RC) broken("tRC");
          open[ba] = 1;
          row[ba] = a;
          opened[ba] = now;
        end
        WRITE, READ: begin
          if (!open[ba]) broken("no row is open");
          if (now - opened[ba] < RCD) broken("tRCD");
          if (command == READ) begin
            reads = reads + 1;
            coming <= 1;
            word <= words[place];
          end else begin
            writes = writes + 1;
            if (coming | driven) broken("read data and written data collide");
            if (!dqm[0]) words[place][7:0] <= dq[7:0];
            if (!dqm[1]) words[place][15:8] <= dq[15:8];
            wrote[ba] = now;
          end
          // The precharge begins in the next cycle, and after tRAS.
          if (a[10]) close(ba, now - opened[ba] < RAS ? opened[ba] + RAS : now + WR);
        end
        STOP: broken("a burst is stopped");
        default: ;
      endcase
    end
    // A refresh may be late by one access, but none is left out.
    if (started == 3 & now - last_refresh == 2 * REFI) broken("a refresh is missing");
  end
endmodule
