"""Testbenches of LAD's active position identification module."""
