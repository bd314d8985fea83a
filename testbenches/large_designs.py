"""Large designs in the harness: the instances of a repeated module share their code.

Verilator inlines modules and moves expressions of a parent into its children, so each of several
hundred instances of an operator has its own C++. The code then exceeds the processor's caches.
"""

import re
from collections import Counter
from collections.abc import Sequence

LARGE = 4_000_000
"""Bytes of Verilog, with each module counted once per instance, from which a design is large.

Below, one model for cocotb and harness saves more time than the harness gains.
"""

COPIES, MODULE_BYTES = 3, 2_500
"""Least number of instances and bytes of Verilog of a module that shares its code.

The calls and port variables of a smaller module take longer than its logic.
"""

FLAGS = ("-fno-dfg-scoped",)
"""Verilator's flags: optimisation across modules would read a port's driver, not the port."""


def repeated_modules(texts: Sequence[str], top: str) -> dict[str, list[str]]:
    """Return the data inputs of each repeated module; no modules if the design is not large.

    Parameters
    ----------
    texts : Sequence[str]
        Contents of the Verilog files.
    top : str
        Name of the top module.
    """
    module = re.compile(r"^module (\w+)\s*\(.*?^endmodule", re.M | re.S)
    bodies = {found[1]: found[0] for text in texts for found in module.finditer(text)}
    copies = _copies(bodies, top)
    if sum(count * len(bodies[name]) for name, count in copies.items()) < LARGE:
        return {}
    ports = re.compile(r"^  input (?:\[\d+:0\] )?(\w+);", re.M)
    return {
        name: [port for port in ports.findall(bodies[name]) if port not in ("clk", "rst")]
        for name, count in copies.items()
        if count >= COPIES and len(bodies[name]) >= MODULE_BYTES
    }


def _copies(bodies: dict[str, str], top: str) -> Counter[str]:
    """Return the number of instances of each module in the whole design."""
    instance = re.compile(r"^  (\w+) (?:\\\S+ |\w+) ?\($", re.M)
    children = {
        name: Counter(found for found in instance.findall(body) if found in bodies)
        for name, body in bodies.items()
    }
    copies: Counter[str] = Counter()

    def count(name: str, number: int) -> None:
        copies[name] += number
        for child, times in children[name].items():
            count(child, number * times)

    count(top, 1)
    return copies


def control_lines(modules: dict[str, list[str]]) -> list[str]:
    """Return lines of Verilator's control file.

    A public input is a variable that each instance's code reads. The code is then the same for all
    instances, and Verilator keeps one copy.
    """
    return [
        line
        for name, inputs in modules.items()
        for line in (
            f'no_inline -module "{name}"',
            *(f'public_flat_rd -module "{name}" -var "{port}"' for port in inputs),
        )
    ]
