"""Testbenches of the lane-parallel functions."""
