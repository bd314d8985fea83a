"""Submodules of a unit, some of which exist once per pseudo-channel."""

from amaranth.hdl import Module

from hdl.unit import Unit


def place_parts(m: Module, whole: object) -> None:
    """Add the units among an object's attributes as submodules.

    The first unit of a list has the attribute's name, the others a number as well.
    """
    for name, part in vars(whole).items():
        parts = part if isinstance(part, list) else [part]
        for number, one in enumerate(parts):
            if isinstance(one, Unit):
                m.submodules[f"{name}_{number}" if number else name] = one
