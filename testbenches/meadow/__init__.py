"""Testbenches of MEADOW's units."""
