"""Testbenches of what leads LAD's layers."""
