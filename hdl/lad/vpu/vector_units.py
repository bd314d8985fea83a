"""Vector units inside a module, or ports to vector units outside."""

from collections.abc import Sequence

from amaranth.hdl import Module
from amaranth.lib.wiring import Member, Out, connect, flipped

from hdl.lad.vpu.vector_processing_unit import (
    VectorInterface,
    VectorPort,
    VectorProcessingUnit,
    VectorProcessingUnitParameters,
)


def unit_members(
    parameters: VectorProcessingUnitParameters, number: int, *, shared: bool
) -> dict[str, Member]:
    """Return the member `units` of a module that uses vector units outside, else an empty dict."""
    return {"units": Out(VectorPort(parameters)).array(number)} if shared else {}


def vector_units(
    m: Module,
    outside: Sequence[VectorInterface] | None,
    parameters: VectorProcessingUnitParameters,
    number: int,
) -> list[VectorInterface]:
    """Return the ports of `number` vector units, seen from the module that uses them.

    Parameters
    ----------
    m : Module
        The module that uses the units.
    outside : Sequence of VectorInterface, optional
        The module's own ports to units outside; by default the units are in the module.
    parameters : VectorProcessingUnitParameters
        Dimensions of the units.
    number : int
        Number of units.
    """
    ports = []
    for index in range(number):
        port = VectorPort(parameters).create(path=(f"unit_{index}",))
        # The module's code is the same either way; in a tile, other modules use its units too.
        if outside is not None:
            connect(m, flipped(outside[index]), port)
        else:
            unit = VectorProcessingUnit(parameters=parameters)
            m.submodules[f"unit_{index}"] = unit
            connect(m, port, unit.port)
        ports.append(port)
    return ports
