"""The ports of every unit, an interface, which `tests/ports.json` records.

Run ``python -m testbenches.ports`` after an intentional change of an interface. The file has one
line per unit and preset, such as ``"input clk 1, input rst 1, sink scores 35"``. A stream is one
``sink`` or ``source`` with the width of its payload; its valid and ready ports are implied.
"""

import json
from collections.abc import Iterable

from hdl.catalog import CATALOG
from hdl.emit import Emission
from hdl.paths import ROOT, replace_text

PORTS = ROOT / "tests" / "ports.json"

Port = tuple[str, int, str]
"""Direction (``input`` or ``output``), width in bits, name."""

_OPPOSITE = {"input": "output", "output": "input"}
_STREAMS = {"input": "sink", "output": "source"}


def listed(ports: Iterable[Port]) -> str:
    """Return the line of `PORTS` for the ports of one module, in their order."""
    ports = list(ports)
    known = {name: (direction, width) for direction, width, name in ports}
    implied = set()
    words = []
    for direction, width, name in ports:
        stem, _, role = name.rpartition("_")
        valid, ready = f"{stem}_valid", f"{stem}_ready"
        if (
            role == "payload"
            and known.get(valid) == (direction, 1)
            and known.get(ready) == (_OPPOSITE[direction], 1)
        ):
            implied |= {valid, ready}
            words.append(f"{_STREAMS[direction]} {stem} {width}")
        elif name not in implied:
            words.append(f"{direction} {name} {width}")
    return ", ".join(words)


def kept_ports() -> dict[str, str]:
    """Return the content of `PORTS`: by ``"<top> <preset>"`` the line of `listed`."""
    return json.loads(PORTS.read_text())


def difference(known: str, present: str) -> str:
    """Return the ports that two lines of `listed` do not share, one per line.

    Parameters
    ----------
    known, present : str
        The recorded and the present line.

    Returns
    -------
    str
        ``-`` with what is recorded only, ``+`` with what is new; a changed port has both. Empty
        if the lines are equal; ``another order`` if they have the same ports.
    """
    before, after = known.split(", "), present.split(", ")
    lines = [f"- {port}" for port in before if port not in after]
    lines += [f"+ {port}" for port in after if port not in before]
    return "\n".join(lines) or ("" if before == after else "another order")


def main() -> None:
    """Write `PORTS` and print each difference."""
    before = kept_ports() if PORTS.exists() else {}
    present = {}
    for entry in CATALOG:
        for preset in entry.presets:
            name = f"{entry.top} {preset}"
            top = Emission(top=entry.build(preset), name=entry.top).modules[-1]
            present[name] = listed((port.direction, port.width, port.name) for port in top.ports)
            if changed := difference(before.get(name, ""), present[name]):
                print(f"{name}\n{changed}")
    for name in before.keys() - present.keys():
        print(f"{name} is not in the catalog any more")
    replace_text(PORTS, json.dumps(present, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
