"""Submodules of a unit, some of which exist once per pseudo-channel."""

from amaranth.hdl import Module

from hdl.unit import Unit


def place_parts(m: Module, unit: Unit) -> None:
    """Add a unit's attributes as submodules; the first of a list has the attribute's name."""
    for name, part in vars(unit).items():
        parts = part if isinstance(part, list) else [part]
        for number, one in enumerate(parts):
            if isinstance(one, Unit):
                m.submodules[f"{name}_{number}" if number else name] = one
