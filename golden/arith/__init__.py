"""Bit-exact numpy models of the number formats and arithmetic operators."""
