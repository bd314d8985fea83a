"""Testbenches of MEADOW's weight unpacking."""
