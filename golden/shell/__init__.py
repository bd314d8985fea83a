"""Models of the AXI shell."""
