"""Maximum or minimum of a vector that arrives in slices."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line

LEVELS = 2
"""Levels of the comparator tree per pipeline stage."""


class Extreme(NamedTuple):
    """The maximum or minimum of a vector, held until the next, and the strobe of a new one."""

    value: Signal
    strobe: Value


def higher(a: Value, b: Value) -> Value:
    """Return the larger of two numbers."""
    return Mux(a > b, a, b)


def lower(a: Value, b: Value) -> Value:
    """Return the smaller of two numbers."""
    return Mux(a < b, a, b)


def extreme_stages(lanes: int) -> int:
    """Return the cycles from a vector's last slice to its maximum or minimum."""
    return max(-(-ceil_log2(lanes) // LEVELS), 1) + 1


def extreme(
    m: Module,
    values: Sequence[Value],
    chosen: Callable[[Value, Value], Value],
    *,
    take: Value,
    last: Value,
    name: str,
) -> Extreme:
    """Return the maximum or minimum of a vector.

    **Latency** `extreme_stages` cycles. **Throughput** one slice per cycle, also across vectors.

    Parameters
    ----------
    m : Module
        Module to which the logic is added.
    values : Sequence[Value]
        Numbers of a slice, all of one shape; their number is a power of two.
    chosen : Callable
        `higher` or `lower`.
    take, last : Value
        A slice is valid; it is the last one of its vector.
    name : str
        Prefix of the registers' names.
    """
    stages = extreme_stages(len(values))
    strobe = delay_line(m, take, stages, name=f"{name}_strobe", reset=True)
    lasts = delay_line(m, last, stages, name=f"{name}_last")
    in_slice = _in_slice(m, values, chosen, name)
    found, begins = Signal(in_slice.shape(), name=name, reset_less=True), Signal(init=1)
    # The first slice of a vector replaces the result of the previous vector.
    with m.If(strobe[-2]):
        m.d.sync += [
            found.eq(Mux(begins, in_slice, chosen(in_slice, found))),
            begins.eq(lasts[-2]),
        ]
    return Extreme(found, strobe[-1] & lasts[-1])


def _in_slice(
    m: Module, values: Sequence[Value], chosen: Callable[[Value, Value], Value], name: str
) -> Value:
    """Return a slice's maximum or minimum by a tree with registers after `LEVELS` levels."""
    levels = ceil_log2(len(values))
    level = list(values)
    for depth in range(max(levels, 1)):
        if levels:
            level = [chosen(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
        # Operands are used twice, in comparison and selection: without a name each level would
        # repeat the expressions of all lower levels.
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
