"""Testbenches of LAD's special function module."""
