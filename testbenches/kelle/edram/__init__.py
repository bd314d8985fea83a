"""Testbenches of Kelle's eDRAM."""
