"""The router: keys and values in the same cycle both reach their memories."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.target import Target, writing_for

TINY: KelleParameters = entry_named("kelle").parameters("tiny_words")
"""A single key/value head, whose values follow its keys immediately."""


def test_values_pass_while_keys_are_rotated() -> None:
    """A head's values start some cycles after its last key; no slice is lost for any distance."""
    p = replace(TINY, bands=2, word_bytes=4, heads=4, vectors=2)
    unit = ResultRouter(parameters=p)
    slices, values = p.head_slices, 8
    keys: list[Any] = [(Operation.KEY, part) for part in range(slices)]
    behind: list[Any] = [(Operation.VALUE, part % slices) for part in range(values)]
    behind += [None] * 16

    async def head(context: Any, gap: int) -> dict[str, list[int]]:
        """Send a head's keys and values; return the parts that are output."""
        seen: dict[str, list[int]] = {"computed_keys": [], "computed_values": []}
        for item in [*keys, *[None] * gap, *behind]:
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
        return seen

    async def bench(context: Any) -> None:
        context.set(unit.members[0], {"vector": p.vectors, "position": 5})
        for gap in range(12):
            seen = await head(context, gap)
            assert seen["computed_keys"] == list(range(slices)), gap
            assert seen["computed_values"] == [part % slices for part in range(values)], gap

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
