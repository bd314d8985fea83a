"""Testbenches of the number formats and arithmetic operators."""
