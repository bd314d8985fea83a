"""Names that no tool escapes or mangles: words joined by one underscore.

Amaranth joins a path with two underscores and a field with a dot, and distinguishes equal names by
``$`` and a number. Verilog must escape dots and ``$``, Verilator writes two underscores as
``___05F``, and VHDL allows neither two in a row nor one at an end.
"""

import re
from collections.abc import Mapping
from itertools import count

from hdl.rtlil import Module, bits, names_in
from hdl.verilog_names import KEYWORDS, VHDL

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")


def is_plain(name: str) -> bool:
    """Whether Verilog, Verilator and VHDL accept a name unchanged."""
    return _PLAIN.fullmatch(name) is not None and name not in KEYWORDS | VHDL


def port_name(path: tuple[str, ...]) -> str:
    """Return the name of a port from its path in the unit's signature."""
    name = "_".join(path)
    return f"{name}_port" if name in KEYWORDS | VHDL else name


def plain(name: str) -> str:
    """Return an RTLIL name as plain words, without the number that distinguishes equal names."""
    text = re.sub(r"\$\d+(?=[.\[]|$)", "", name[1:])
    text = re.sub(r"\W+|__+", "_", text, flags=re.ASCII).strip("_")
    return text if text[:1].isalpha() else f"unnamed_{text}".rstrip("_")


class Names:
    """The set of names in use in one module; each name is assigned once."""

    def __init__(self) -> None:
        self._taken: set[str] = set(KEYWORDS)
        self._numbers = count(1)

    def take(self, name: str) -> str:
        """Return the name, or the first free name with a number appended, in RTLIL's notation."""
        free, number = name, 1
        while free in self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken.add(free)
        return f"\\{free}"

    def private(self) -> str:
        """Return a name for an object without a source name; such names sort in call order."""
        return f"${next(self._numbers):07}"


def name_plainly(
    module: Module, ports: Mapping[str, str], modules: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Give plain names to a module and to its wires, memories and instances.

    Parameters
    ----------
    module : Module
        The module, changed in place.
    ports : Mapping[str, str]
        Required names of its ports, by the old names.
    modules : Mapping[str, Mapping[str, str]]
        Results of this function for the modules that it instantiates, by their old names.

    Returns
    -------
    dict[str, str]
        The new names of its ports by the old ones, both without the backslash.

    Raises
    ------
    ValueError
        If two ports would have equal names, or a port's name is not plain.
    """
    taken, names = Names(), dict[str, str]()
    for name, wire in module.wires.items():
        if wire.direction:
            wanted = ports.get(name[1:])
            names[name] = taken.take(wanted or plain(name))
            if wanted and (names[name] != f"\\{wanted}" or not is_plain(wanted)):
                raise ValueError(
                    "ports must have distinct names without two underscores in a row or one at an "
                    f"end, not {wanted!r} in {module.name[1:]}"
                )
    for cell in module.cells:
        if cell.is_instance:
            cell.name = taken.take(plain(cell.name))
            new = modules.get(cell.kind[1:], {})
            cell.connections = {new.get(k, k): v for k, v in cell.connections.items()}
            cell.kind = f"\\{module_name(cell.kind)}"
        else:
            cell.name = taken.private()
    for process in module.processes:
        process.name = taken.private()
    memories = {name: taken.take(plain(name)) for name in module.memories}
    module.memories = {memories[name]: options for name, options in module.memories.items()}
    for cell in module.cells:
        if "MEMID" in cell.parameters:
            memory = memories[cell.parameters["MEMID"].strip('"')[1:]]
            cell.parameters["MEMID"] = f'"\\{memory}"'
    hints = _hints(module, names)
    for name in module.wires:
        if name not in names:
            known = hints.get(name) or (plain(name) if name.startswith("\\") else None)
            names[name] = taken.take(known) if known else taken.private()
    module.rename(names)
    module.name = f"\\{module_name(module.name)}"
    return {old[1:]: new[1:] for old, new in names.items()}


def module_name(name: str) -> str:
    """Return a module's name: its unit's name, or the path of a component that is no unit."""
    return plain(name) if "." in name else name[1:]


def _hints(module: Module, ports: Mapping[str, str]) -> dict[str, str]:
    """Derive wire names from the instance port or the register that a wire connects to."""
    hints: dict[str, str] = {}

    def hint(signal: str, name: str, only: str | None) -> None:
        wire = (names_in(signal) or [""])[0]
        if wire not in module.wires or wire in ports or wire in hints:
            return
        if signal not in (wire, bits(wire, module.wires[wire].width)):
            return
        if wire[0] == "$" or plain(wire) == only:
            hints[wire] = name

    instances = [cell for cell in module.cells if cell.is_instance]
    # RTLIL writes an instance's output without a bit range. Drivers name a wire before readers do.
    for drives in (True, False):
        for cell in instances:
            for port, signal in cell.connections.items():
                if signal.startswith(("\\", "$")) and (" " not in signal) is drives:
                    hint(signal, plain(f"{cell.name}_{port}"), port)
    for cell in module.cells:
        if re.fullmatch(r"\$s?dffe?", cell.kind) and " " not in cell.connections["Q"]:
            register = cell.connections["Q"]
            name = hints.get(register) or plain(ports.get(register, register))
            hint(cell.connections["D"], f"{name}_next", None)
    return hints
