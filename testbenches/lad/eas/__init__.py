"""Testbenches of LAD's attention score module."""
