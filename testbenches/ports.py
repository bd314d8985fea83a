"""Write the ports of every unit to the reference file of a test.

Run `python -m testbenches.ports` after an intentional change of an interface.
"""

import json

from hdl.catalog import CATALOG
from hdl.emit import Emission
from hdl.paths import ROOT

if __name__ == "__main__":
    ports = {}
    for entry in CATALOG:
        for preset in entry.presets:
            top = Emission(top=entry.build(preset), name=entry.top).modules[-1]
            shown = [f"{port.direction} {port.width} {port.name}" for port in top.ports]
            ports.setdefault(entry.top, {})[preset] = shown
    (ROOT / "tests" / "ports.json").write_text(json.dumps(ports, indent=2) + "\n")
