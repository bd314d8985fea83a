"""A whole model through an accelerator's Verilog: what all systems share, and an adapter each."""
