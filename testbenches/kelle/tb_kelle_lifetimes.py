"""Testbench that measures the lifetimes of a step's transient data: Section 6, Figure 12 (b)."""

from typing import Any

import cocotb
import numpy as np

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from testbenches.bench import catalog_parameters, record_fact
from testbenches.kelle.decode import Decode, longest
from testbenches.kelle.probed_kelle import WRITES, probe_layout
from testbenches.packing import from_integers, unpack
from testbenches.streams import read

STEPS = 4
"""Steps that are observed; the first one reads data that was written before."""


class Watch:
    """Records the cycles in which a step's data are written, and those of their last reads."""

    def __init__(self, dut: Any, p: KelleParameters, bench: Any) -> None:
        self.dut, self.layout, self.bench = dut, probe_layout(p), bench
        self.seen: list[tuple[int, int]] = []
        self.clear()
        bench.add(self)

    def clear(self) -> None:
        """Clear the records."""
        self.seen = []

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Record the cycles with at least one event."""
        probe = read(self.dut.probe)
        if probe & ((1 << len(WRITES) + 1) - 1):
            self.seen.append((self.bench.cycle, probe))

    def events(self) -> dict[str, Any]:
        """Return each strobe's cycles, and those of operations, by name."""
        cycles = np.array([cycle for cycle, _probe in self.seen])
        probes = [probe for _cycle, probe in self.seen]
        shown = unpack(self.layout, from_integers(probes, self.layout.size))
        found = {name: cycles[shown[name] == 1] for name in WRITES}
        for which in Operation:
            found[which.name] = cycles[(shown["ends"] == 1) & (shown["operation"] == which.value)]
        return found


def lifetimes(p: KelleParameters, events: dict[str, Any]) -> dict[str, int]:
    """Return the cycles from the write of a head's first slice to its last read, at most.

    For x, the first slice of all is used, which is multiplied by all three matrices.
    """

    def heads(name: str, slices: int) -> Any:
        """Return when each key/value head's first slice is written."""
        return events[name].reshape(p.kv_heads, slices)[:, 0]

    reads = {which: events[which.name] for which in (Operation.OWN, Operation.ATTEND)}
    group = p.group_size * p.head_slices
    written = {
        "q": (heads("queries", group), Operation.OWN),
        "k": (heads("computed_keys", p.head_slices), Operation.OWN),
        "v": (heads("computed_values", p.head_slices), Operation.ATTEND),
        "scores": (heads("probabilities", p.group_size * (p.cache_tiles + 1)), Operation.ATTEND),
    }
    found = {"x": int(events["VALUE"][-1] - events["inputs"][0])}
    for name, (begins, which) in written.items():
        found[name] = int((reads[which] - begins).max())
    return found


@cocotb.test()
async def transient_data(dut: Any) -> None:
    """Decode, and measure the last step."""
    decode = Decode(dut, "transient data")
    p: KelleParameters = catalog_parameters()
    await decode.start(longest(p), decode.full, select=p.slots <= 16)
    watch = Watch(dut, p, decode.bench)
    for now in decode.text(decode.full, STEPS if p.slots <= 16 else 1):
        watch.clear()
        await decode.step(now)
    await decode.check()
    for name, cycles in lifetimes(p, watch.events()).items():
        record_fact("lifetimes", name, cycles)
