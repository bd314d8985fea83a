"""Shape of FP16 numbers in LAD's ports and memories."""

from amaranth.hdl import unsigned

from hdl.arith.float_format import BINARY16

FP16 = unsigned(BINARY16.width)
"""Shape of an FP16 code."""
