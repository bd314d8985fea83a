"""How LAD's ports and memories carry numbers."""

from amaranth.hdl import unsigned

from hdl.arith.float_format import BINARY16

FP16 = unsigned(BINARY16.width)
"""A code of FP16."""
