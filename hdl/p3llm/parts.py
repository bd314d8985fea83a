"""Parts of a unit, of which each pseudo-channel may have one."""

from amaranth.hdl import Module

from hdl.unit import Unit


def place_parts(m: Module, unit: Unit) -> None:
    """Make submodules of a unit's attributes; of a list the first one has the attribute's name."""
    for name, part in vars(unit).items():
        parts = part if isinstance(part, list) else [part]
        for number, one in enumerate(parts):
            if isinstance(one, Unit):
                m.submodules[f"{name}_{number}" if number else name] = one
