"""Testbenches of LAD's mode discrepancy module."""
