"""Testbenches of Kelle's eviction."""
