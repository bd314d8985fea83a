"""Testbenches of P3-LLM's PIM."""
