"""Reads of the sums that an accumulator stores."""

from collections.abc import Iterable
from typing import Any

from hdl.p3llm.npu.total_collector import TotalCollector


def signed(value: int, width: int) -> int:
    """Return a number in two's complement as an integer."""
    return value - (value >> width - 1 << width)


async def read_back(ctx: Any, unit: TotalCollector, places: Iterable[int]) -> dict[int, list[int]]:
    """Read the sums of results by place: a slice of the NPU has one or two results."""
    p, got = unit.parameters, {}
    of_slice = p.lanes // p.result
    ctx.set(unit.read_enable, 1)
    for place in places:
        ctx.set(unit.read_address, place // of_slice)
        await ctx.tick()
        first = place % of_slice * p.result
        got[place] = [signed(ctx.get(unit.sums[first + lane]), 48) for lane in range(p.result)]
    return got
