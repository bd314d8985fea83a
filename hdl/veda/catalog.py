"""The units of VEDA."""

from hdl.entry import Entry

UNITS: tuple[Entry, ...] = ()
"""Every unit of VEDA."""
