"""Testbenches of MEADOW's control folder."""
