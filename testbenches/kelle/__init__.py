"""Testbenches of Kelle's units."""
