"""Testbenches of VEDA's PE array."""
