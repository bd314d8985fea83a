"""Testbenches of LAD's linear layers."""
