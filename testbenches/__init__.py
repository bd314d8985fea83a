"""Testbenches of the emitted Verilog, in cocotb, and what runs them."""
