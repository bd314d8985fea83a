"""The highest or lowest of a slice's numbers."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Module, Mux, Signal, Value


def higher(a: Value, b: Value) -> Value:
    """Return the larger of two."""
    return Mux(a > b, a, b)


def lower(a: Value, b: Value) -> Value:
    """Return the smaller of two."""
    return Mux(a < b, a, b)


def extreme(
    m: Module, values: Sequence[Value], chosen: Callable[[Value, Value], Value], *, name: str
) -> Value:
    """Return the highest or lowest of some numbers of one shape, by a balanced tree.

    Parameters
    ----------
    m : Module
        Where the logic goes.
    values : Sequence[Value]
        The numbers.
    chosen : Callable
        `higher` or `lower`.
    name : str
        Of the wires.
    """
    # What is compared and then chosen needs a wire, or each level would repeat those below.
    level = [_wire(m, value, f"{name}_{index}") for index, value in enumerate(values)]
    depth = 0
    while len(level) > 1:
        depth += 1
        pairs = zip(level[::2], level[1::2], strict=False)
        winners = [
            _wire(m, chosen(a, b), f"{name}_{depth}_{index}") for index, (a, b) in enumerate(pairs)
        ]
        level = winners + level[len(level) & ~1 :]
    return level[0]


def _wire(m: Module, value: Value, name: str) -> Signal:
    wire = Signal(value.shape(), name=name)
    m.d.comb += wire.eq(value)
    return wire
