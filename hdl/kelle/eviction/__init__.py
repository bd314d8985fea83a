"""Kelle's evictor, its controller, and the selection at a prefill's end."""
