"""Adders with parallel-prefix carries: few levels of logic for little area.

The prefix network is Sklansky's ("Conditional-sum addition logic", 1960): the carry of bit `i`
takes ``log2(i)`` levels. FPGA carry chains are faster than such logic, so for an FPGA the functions
use ``+``.
"""

from amaranth.hdl import Cat, Const, Module, Signal, Value

from hdl.arith.named import named
from hdl.target import Target, current_target


def prefix_sum(m: Module, a: Value, b: Value) -> Value:
    """Return the sum of two unsigned values of equal width, one bit wider."""
    a, b = named(m, a), named(m, b)
    # An FPGA carry chain is faster than a prefix tree of lookup tables.
    if current_target() is Target.FPGA:
        return named(m, a + b)
    # Each bit position generates a carry, or propagates the carry from below.
    generate = [x & y for x, y in zip(a, b, strict=True)]
    propagate = [x | y for x, y in zip(a, b, strict=True)]
    # After the last level, `generate` is the carry out of each position.
    for index, below in _prefix(len(a)):
        generated, propagated = Signal(), Signal()
        m.d.comb += [
            generated.eq(generate[index] | (propagate[index] & generate[below])),
            propagated.eq(propagate[index] & propagate[below]),
        ]
        generate[index], propagate[index] = generated, propagated
    return named(m, Cat(a ^ b, Const(0, 1)) ^ Cat(Const(0, 1), *generate))


def prefix_difference(m: Module, a: Value, b: Value) -> tuple[Value, Value]:
    """Return ``a - b`` of two unsigned values of equal width, modulo it, and whether ``a >= b``."""
    # The one that completes the two's complement enters as the carry into the lowest position.
    total = prefix_sum(m, Cat(Const(1, 1), a), Cat(Const(1, 1), ~b))
    return total[1:-1], total[-1]


def incremented(m: Module, value: Value, increment: Value) -> Value:
    """Return the value plus a 1-bit increment, modulo its width; the increment may be late."""
    value = named(m, value)
    if current_target() is Target.FPGA:
        return named(m, (value + increment)[: len(value)])
    # A bit flips if all bits below it are ones; the increment passes only one level of logic.
    ones = [Const(1, 1), *value[:-1]]
    for index, below in _prefix(len(ones)):
        both = Signal()
        m.d.comb += both.eq(ones[index] & ones[below])
        ones[index] = both
    return named(m, value ^ (Cat(ones) & increment.replicate(len(ones))))


def _prefix(width: int) -> list[tuple[int, int]]:
    """Return pairs of a position and the lower position it combines with, level by level."""
    # Sklansky: at level k, the upper half of each 2**(k + 1) block combines with the lower half's
    # top.
    levels = range((width - 1).bit_length())
    return [
        (index, (index >> level << level) - 1)
        for level in levels
        for index in range(width)
        if index >> level & 1
    ]
