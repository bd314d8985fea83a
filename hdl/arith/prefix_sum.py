"""Sums whose carries are found as a parallel prefix: few levels of logic for little area.

The prefix is Sklansky's ("Conditional-sum addition logic", 1960): bit `i`'s carry is known after
``log2(i)`` levels. An FPGA's carry chains are faster than any such logic, so there the same sums
are left to them.
"""

from amaranth.hdl import Cat, Const, Module, Signal, Value

from hdl.arith.named import named
from hdl.target import Target, current_target


def prefix_sum(m: Module, a: Value, b: Value) -> Value:
    """Return the sum of two unsigned values of one width, one bit wider."""
    a, b = named(m, a), named(m, b)
    # An FPGA's carry chain is faster than any tree of its tables.
    if current_target() is Target.FPGA:
        return named(m, a + b)
    # A position generates a carry by itself, or propagates the one from below.
    generate = [x & y for x, y in zip(a, b, strict=True)]
    propagate = [x | y for x, y in zip(a, b, strict=True)]
    # Behind the last level `generate` is the carry out of each position, from all below it.
    for index, below in _prefix(len(a)):
        generated, propagated = Signal(), Signal()
        m.d.comb += [
            generated.eq(generate[index] | (propagate[index] & generate[below])),
            propagated.eq(propagate[index] & propagate[below]),
        ]
        generate[index], propagate[index] = generated, propagated
    return named(m, Cat(a ^ b, Const(0, 1)) ^ Cat(Const(0, 1), *generate))


def prefix_difference(m: Module, a: Value, b: Value) -> tuple[Value, Value]:
    """Return ``a - b`` of two unsigned values of one width, modulo it, and whether ``a >= b``."""
    # The one that makes a complement negative is a carry into the lowest position.
    total = prefix_sum(m, Cat(Const(1, 1), a), Cat(Const(1, 1), ~b))
    return total[1:-1], total[-1]


def incremented(m: Module, value: Value, increment: Value) -> Value:
    """Return the value plus one bit, modulo its width; that bit may come late."""
    value = named(m, value)
    if current_target() is Target.FPGA:
        return named(m, (value + increment)[: len(value)])
    # A bit flips where all below it are ones; the increment itself comes in at the very end.
    ones = [Const(1, 1), *value[:-1]]
    for index, below in _prefix(len(ones)):
        both = Signal()
        m.d.comb += both.eq(ones[index] & ones[below])
        ones[index] = both
    return named(m, value ^ (Cat(ones) & increment.replicate(len(ones))))


def _prefix(width: int) -> list[tuple[int, int]]:
    """Return which position takes in which one below it, level by level."""
    # Sklansky's tree: in level k the upper half of each 2**(k + 1) takes in the lower half's top.
    levels = range((width - 1).bit_length())
    return [
        (index, (index >> level << level) - 1)
        for level in levels
        for index in range(width)
        if index >> level & 1
    ]
