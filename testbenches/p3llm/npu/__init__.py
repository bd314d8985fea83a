"""Testbenches of the units between the NPU's number formats."""
