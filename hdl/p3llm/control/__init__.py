"""The order of work: commands for the banks, a program for the NPU."""
