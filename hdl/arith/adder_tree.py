"""Balanced trees of exact integer adders."""

from collections.abc import Sequence

from amaranth.hdl import Value, ValueLike


def pairs(values: Sequence[ValueLike]) -> list[Value]:
    """Add adjacent pairs; an unpaired last value is passed on unchanged."""
    level = [Value.cast(value) for value in values]
    sums = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
    return sums + level[len(level) & ~1 :]


def tree_sum(values: Sequence[ValueLike]) -> Value:
    """Return the exact sum of values of any shapes as a balanced tree.

    Unlike Python's `sum`, the depth is logarithmic and the result grows by one bit per level.
    """
    level = list(values)
    while len(level) > 1:
        level = pairs(level)
    return Value.cast(level[0])
