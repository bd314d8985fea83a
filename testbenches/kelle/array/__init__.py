"""Testbenches of Kelle's array."""
