"""Testbenches of the AXI shell."""
