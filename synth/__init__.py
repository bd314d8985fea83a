"""From emitted Verilog to area, timing, power, FPGA figures, hand-over projects and reports."""
