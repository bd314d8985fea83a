"""Systola: synthesizable accelerators for large-language-model inference, written in Amaranth."""

__version__ = "0.1.0"
