"""Vector units of a module's own, or those that stand outside."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib.wiring import Out, connect, flipped

from hdl.lad.vpu.vector_processing_unit import (
    VectorPort,
    VectorProcessingUnit,
    VectorProcessingUnitParameters,
)


def unit_members(
    parameters: VectorProcessingUnitParameters, number: int, *, shared: bool
) -> dict[str, Any]:
    """Return the member `units` of a module whose vector units stand outside, else nothing."""
    return {"units": Out(VectorPort(parameters)).array(number)} if shared else {}


def vector_units(
    m: Module, owner: Any, parameters: VectorProcessingUnitParameters, number: int
) -> list[Any]:
    """Return the ports of so many vector units, as the module sees them."""
    ports: list[Any] = []
    for index in range(number):
        port: Any = VectorPort(parameters).create(path=(f"unit_{index}",))
        # The module is the same either way; a tile lets others use its units in turns.
        if owner.shared:
            connect(m, flipped(owner.units[index]), port)
        else:
            unit = VectorProcessingUnit(parameters=parameters)
            m.submodules[f"unit_{index}"] = unit
            connect(m, port, unit.port)
        ports.append(port)
    return ports
