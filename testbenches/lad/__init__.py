"""Testbenches of LAD's units."""
