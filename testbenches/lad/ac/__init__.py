"""Testbenches of LAD's attention computation module."""
