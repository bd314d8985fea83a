"""Testbenches of VEDA's element-serial functions."""
