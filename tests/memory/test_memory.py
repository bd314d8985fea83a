"""The memory reads written words, the old word on a collision, and writes parts of words."""

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.emit import Emission
from hdl.memory.memory import Memory
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from testbenches.lint import lint_unit


@pytest.mark.parametrize(("depth", "width", "granularity"), [(2, 8, None), (5, 12, 4), (16, 3, 1)])
def test_reads_and_writes(depth: int, width: int, granularity: int | None) -> None:
    unit = Memory(depth=depth, width=width, granularity=granularity)
    part = granularity or width
    rng = random.Random(depth)
    words: list[int | None] = [None] * depth
    shown: int | None = None
    compared = 0

    async def bench(ctx: Any) -> None:
        nonlocal shown, compared
        for cycle in range(600):
            if shown is not None:
                assert ctx.get(unit.read_data) == shown
                compared += 1
            # Write whole words first: unwritten words are undefined.
            enables = -1 if cycle < 20 * depth else rng.getrandbits(width // part)
            enables &= (1 << width // part) - 1
            to, word = rng.randrange(depth), rng.getrandbits(width)
            reads, at = rng.randrange(2), rng.randrange(depth)
            ctx.set(unit.write_enable, enables)
            ctx.set(unit.write_address, to)
            ctx.set(unit.write_data, word)
            ctx.set(unit.read_enable, reads)
            ctx.set(unit.read_address, at)
            if reads:
                shown = words[at]
            mask = sum(
                (1 << part) - 1 << part * n for n in range(width // part) if enables >> n & 1
            )
            if (before := words[to]) is not None or enables == (1 << width // part) - 1:
                words[to] = (before or 0) & ~mask | word & mask
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert compared > 200


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"depth": 1}, "depth must be an integer from 2 to 1048576, not 1"),
        ({"width": 65537}, "width must be an integer from 1 to 65536, not 65537"),
        ({"granularity": 3}, "granularity must divide the width 8, not 3"),
    ],
)
def test_rejects_dimensions_out_of_range(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Memory(**{"depth": 4, "width": 8} | changed)


def test_the_widest_line_of_an_array_fits() -> None:
    width = FlexiblePeArrayParameters(rows=16, columns=16).vector_layout.size
    assert width == 8192
    assert not lint_unit("memory", Emission(top=Memory(depth=2, width=width), name="memory"))
