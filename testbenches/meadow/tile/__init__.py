"""Testbenches of a tile of MEADOW."""
