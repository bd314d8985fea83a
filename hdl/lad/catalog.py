"""The units of LAD, with the dimensions at which each is built."""

from hdl.entry import Entry

UNITS: tuple[Entry, ...] = ()
"""Every unit of the paper."""
