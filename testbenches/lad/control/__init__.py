"""Testbenches of LAD's control units."""
