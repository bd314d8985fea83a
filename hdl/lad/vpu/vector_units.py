"""Vector units inside a module, or ports to vector units outside."""

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
    """Return the member `units` of a module that uses vector units outside, else an empty dict."""
    return {"units": Out(VectorPort(parameters)).array(number)} if shared else {}


def vector_units(
    m: Module, owner: Any, parameters: VectorProcessingUnitParameters, number: int
) -> list[Any]:
    """Return the ports of `number` vector units, seen from the module."""
    ports: list[Any] = []
    for index in range(number):
        port: Any = VectorPort(parameters).create(path=(f"unit_{index}",))
        # The module's code is the same either way; in a tile, other modules use its units too.
        if owner.shared:
            connect(m, flipped(owner.units[index]), port)
        else:
            unit = VectorProcessingUnit(parameters=parameters)
            m.submodules[f"unit_{index}"] = unit
            connect(m, port, unit.port)
        ports.append(port)
    return ports
