"""The router: keys and values in the same cycle both reach their memories."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from amaranth.sim import Simulator

from golden.nonlinear.rotary_embedding import rotate
from hdl.catalog import entry_named
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.target import Target, writing_for

TINY: KelleParameters = entry_named("kelle").parameters("tiny_words")
"""A single key/value head, whose values follow its keys immediately."""


def test_pieces_of_slices_are_rotated_as_whole_slices() -> None:
    """Heads of all members, with random values and positions, against the golden model."""
    p = replace(TINY, rows=8, bands=4, word_bytes=4, slots=16, heads=2, head_size=16)
    p = replace(p, intermediate_size=32)
    assert p.rotary_pieces == 2 and p.head_slices == 2
    unit = ResultRouter(parameters=p)
    rng = np.random.default_rng(6)
    heads = rng.integers(-(1 << 15), 1 << 15, (6, p.members, p.head_size))
    positions = rng.integers(0, p.context_length, p.members)
    found: list[list[int]] = []

    async def bench(context: Any) -> None:
        for member, position in enumerate(positions.tolist()):
            context.set(unit.members[member], {"vector": member, "position": position})
        for head in heads:
            for part in range(p.head_slices):
                # The array multiplies a slice of all inputs before the next slice of outputs.
                for cycle in range(p.members * p.hidden_slices):
                    member = cycle - p.members * (p.hidden_slices - 1)
                    context.set(unit.results.valid, int(member >= 0))
                    if member >= 0:
                        header: Mapping[int | str, Any] = {
                            "operation": Operation.KEY,
                            "part": part,
                            "index": member,
                        }
                        context.set(unit.results.user, p.header_layout.const(header).as_bits())
                        values = head[member, part * p.rows :][: p.rows].tolist()
                        for lane, value in enumerate(values):
                            context.set(unit.results["values"][lane], value)
                    await step(context)
        context.set(unit.results.valid, 0)
        for _ in range(4 * p.members * p.head_size):
            await step(context)

    async def step(context: Any) -> None:
        if context.get(unit.computed_keys.strobe):
            lanes = range(p.rows)
            found.append([context.get(unit.computed_keys["values"][lane]) for lane in lanes])
        await context.tick()

    run(unit, bench)
    wanted = [rotate(head, positions, p.embedding) for head in heads]
    assert np.array_equal(np.array(found).reshape(heads.shape), wanted)


def run(unit: ResultRouter, bench: Callable[[Any], Any]) -> None:
    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


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

    run(unit, bench)
