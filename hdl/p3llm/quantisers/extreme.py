"""The highest or lowest of a vector's numbers, which come in slices."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line

LEVELS = 2
"""Levels of a slice's comparisons that fit into a cycle."""


def higher(a: Value, b: Value) -> Value:
    """Return the larger of two."""
    return Mux(a > b, a, b)


def lower(a: Value, b: Value) -> Value:
    """Return the smaller of two."""
    return Mux(a < b, a, b)


def extreme_stages(lanes: int) -> int:
    """Return the cycles from a vector's last slice of so many numbers to its extreme."""
    return max(-(-ceil_log2(lanes) // LEVELS), 1) + 1


def extreme(
    m: Module,
    values: Sequence[Value],
    chosen: Callable[[Value, Value], Value],
    *,
    take: Value,
    last: Value,
    name: str,
) -> tuple[Signal, Value]:
    """Return the highest or lowest of a vector's numbers, and when it is; it stands until the next.

    **Latency** `extreme_stages` cycles. **Throughput** a slice a cycle, vector behind vector.

    Parameters
    ----------
    m : Module
        Where the logic goes.
    values : Sequence[Value]
        A slice's numbers, of one shape; a power of two.
    chosen : Callable
        `higher` or `lower`.
    take, last : Value
        There is a slice; it is its vector's last.
    name : str
        Of the registers.
    """
    stages = extreme_stages(len(values))
    strobe = delay_line(m, take, stages, name=f"{name}_strobe", reset=True)
    lasts = delay_line(m, last, stages, name=f"{name}_last")
    in_slice = _in_slice(m, values, chosen, name)
    found, begins = Signal(in_slice.shape(), name=name, reset_less=True), Signal(init=1)
    # A vector's first slice starts anew instead of from the vector before.
    with m.If(strobe[-2]):
        m.d.sync += [
            found.eq(Mux(begins, in_slice, chosen(in_slice, found))),
            begins.eq(lasts[-2]),
        ]
    return found, strobe[-1] & lasts[-1]


def _in_slice(
    m: Module, values: Sequence[Value], chosen: Callable[[Value, Value], Value], name: str
) -> Value:
    """Return a slice's extreme by a balanced tree, with registers behind every other level."""
    levels = ceil_log2(len(values))
    level = list(values)
    for depth in range(max(levels, 1)):
        if levels:
            level = [chosen(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
        # What is compared and then chosen needs a name, or each level would repeat those below.
        registered = depth % LEVELS == LEVELS - 1 or depth >= levels - 1
        names = [f"{name}_{depth}_{index}" for index in range(len(level))]
        wires = [
            Signal(value.shape(), name=one, reset_less=registered)
            for one, value in zip(names, level, strict=True)
        ]
        domain = m.d.sync if registered else m.d.comb
        domain += [wire.eq(value) for wire, value in zip(wires, level, strict=True)]
        level = wires
    return level[0]
