"""Testbenches of VEDA's array."""
