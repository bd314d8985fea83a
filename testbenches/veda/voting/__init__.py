"""Testbenches of VEDA's voting engine."""
