"""The router: keys and values that come in one cycle both reach their memories."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters

TINY: KelleParameters = entry_named("kelle").parameters("tiny_words")
"""A single key/value head: its values follow its keys at once."""


@pytest.mark.parametrize("gap", range(12))
def test_values_pass_while_keys_are_rotated(gap: int) -> None:
    """A head's values begin `gap` cycles after its last key: whatever meets, all is there."""
    p = replace(TINY, bands=2, word_bytes=4, queries=2, vectors=2)
    unit = ResultRouter(parameters=p)
    slices, values = p.slices, 8
    work = [(Operation.KEY, part) for part in range(slices)]
    work += [None] * gap + [(Operation.VALUE, part % slices) for part in range(values)]
    work += [None] * 16
    seen: dict[str, list[int]] = {"computed_keys": [], "computed_values": []}

    async def bench(context: Any) -> None:
        context.set(unit.members[0], {"vector": p.vectors, "position": 5})
        for item in work:
            context.set(unit.results.valid, int(item is not None))
            if item is not None:
                header: Mapping[int | str, Any] = {
                    "operation": item[0],
                    "head": 0,
                    "part": item[1],
                    "index": 0,
                }
                context.set(unit.results.user, p.header_layout.const(header).as_bits())
            for name, parts in seen.items():
                port = getattr(unit, name)
                if context.get(port.strobe):
                    assert context.get(port.vector) == p.vectors
                    parts.append(context.get(port.part))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen["computed_keys"] == list(range(slices))
    assert seen["computed_values"] == [part % slices for part in range(values)]
