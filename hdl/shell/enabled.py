# amaranth: UnusedElaboratable=no
"""Units with a clock enable, which are derived from units without one."""

from functools import cache
from typing import Any

from amaranth.hdl import Elaboratable, EnableInserter, Fragment, Module
from amaranth.lib.wiring import In

from hdl.memory.memory import Memory
from hdl.unit import ModuleBoundary, Unit


@cache
def enabled(unit: type[Unit]) -> type[Unit]:
    """Return the class of units that are a unit with a clock enable, and have the same parameters.

    Such a unit has the members of the unit, and `clock_enable`. In a cycle without `clock_enable`,
    no register and no memory of the unit or of its parts changes, and no memory is read. A reset
    takes effect in all cycles. So the unit passes through the states of the original one, and
    remains in a state until a cycle with `clock_enable`: the user must transfer items at its
    streams, and take its other outputs, only in these cycles.

    Amaranth's `EnableInserter` does not reach into units that are emitted as separate modules. The
    parts of the unit are therefore such units too. A `Memory` remains what it is, so that it can
    be exchanged for a macro; its enables are gated.
    """

    def elaborate(self: Any, platform: object) -> Fragment:
        parts = _Enabling(self, platform)
        fragment = Fragment.get(unit.elaborate(self, parts), parts)
        return EnableInserter(self.clock_enable)(fragment)

    members = {
        "__doc__": unit.__doc__,
        "__module__": unit.__module__,
        "elaborate": elaborate,
    }
    metaclass: Any = type(unit)
    return metaclass(f"{unit.__name__}Enabled", (unit, _ClockEnable), members)


class _ClockEnable(Unit):
    """The next class of `Unit` after a unit's own: it adds a member to the signature."""

    def __init__(self, signature: Any) -> None:
        members = getattr(signature, "members", signature)
        super().__init__({**members, "clock_enable": In(1)})


class _Enabling:
    """A platform that replaces the parts of a unit by parts with a clock enable.

    Parameters
    ----------
    owner : Unit
        The unit, whose clock enable is that of its parts.
    platform : object
        The platform of the unit itself.
    """

    def __init__(self, owner: Any, platform: object) -> None:
        self.owner = owner
        self.platform: object = platform
        if isinstance(platform, _Enabling):
            self.platform = platform.platform
        self._gated: list[Memory] = []

    def boundary(self, unit: Unit) -> Elaboratable | None:
        """Return the replacement of a part, or None for a unit that has been replaced."""
        if unit is self.owner:
            return None
        if isinstance(unit, _ClockEnable) or any(unit is one for one in self._gated):
            platform = self.platform
            return platform.boundary(unit) if isinstance(platform, ModuleBoundary) else None
        if isinstance(unit, Memory):
            return self._memory(unit)
        part: Any = enabled(type(unit))(**unit.configuration)
        # The part has the ports of the unit that it replaces.
        for name in unit.signature.members:
            setattr(part, name, getattr(unit, name))
        part.clock_enable = self.owner.clock_enable
        return part

    def _memory(self, unit: Memory) -> Module:
        """Return a memory whose enables are gated."""
        m = Module()
        memory = Memory(**unit.configuration)
        self._gated.append(memory)
        m.submodules.memory = memory
        enable = self.owner.clock_enable
        m.d.comb += [
            memory.read_enable.eq(unit.read_enable & enable),
            memory.read_address.eq(unit.read_address),
            unit.read_data.eq(memory.read_data),
            memory.write_enable.eq(unit.write_enable & enable.replicate(len(unit.write_enable))),
            memory.write_address.eq(unit.write_address),
            memory.write_data.eq(unit.write_data),
        ]
        return m
