"""Testbenches of VEDA's units."""
