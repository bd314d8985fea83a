"""Host library: runs an accelerator with the AXI shell, in simulation or on a board."""
