"""Conversion of a unit to RTLIL by Amaranth, without the contents of memories that have none.

Amaranth gives each memory initial contents. It makes an object of each bit, also where all bits are
zero. For large memories these objects take most of the time and of the memory of an emission. In
the emitted Verilog the contents of such a memory are unknown until they are written, as in an SRAM
macro, so that the zeros are not needed.
"""

from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import Fragment, Value
from amaranth.hdl._ast import SignalDict
from amaranth.hdl._ir import PortDirection, build_netlist
from amaranth.lib.wiring import In

from hdl.unit import Unit


class _ModuleEmitter(rtlil.ModuleEmitter):
    """Amaranth's emitter of one module, except for memories that are zero."""

    def emit_memory(self, cell_idx: int, cell: Any) -> None:
        """Emit the contents of a memory, if one of its bits is set."""
        if any(cell.init):
            super().emit_memory(cell_idx, cell)


def convert(unit: Unit, *, name: str, platform: Any, sources: bool) -> str:
    """Convert a unit and the components in it to RTLIL.

    Parameters
    ----------
    unit : Unit
        Unit to convert.
    name : str
        Name of its module.
    platform : Any
        Amaranth platform for which the unit is elaborated.
    sources : bool
        Whether attributes refer to the lines of Python.

    Returns
    -------
    str
        RTLIL text; each module precedes its submodules.
    """
    ports = {
        "__".join(map(str, path)): (
            Value.cast(value),
            PortDirection.Input if member.flow is In else PortDirection.Output,
        )
        for path, member, value in unit.signature.flatten(unit)
    }
    netlist = build_netlist(Fragment.get(unit, platform), ports=ports, name=name)
    names, empty = SignalDict(), rtlil.EmptyModuleChecker(netlist)
    design = rtlil.Design(emit_src=sources)
    for index, module in enumerate(netlist.modules):
        if not empty.is_empty(index):
            part = design.module(".".join(module.name), src_loc=module.src_loc)
            _ModuleEmitter(part, netlist, module, names, empty_checker=empty).emit()
    return str(design)
