"""A board around an accelerator with the AXI shell: host bridge, on-chip memory, and the top."""
