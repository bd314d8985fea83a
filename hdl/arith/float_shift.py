"""Shifters of the floating-point operators that also report the bits shifted out."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def shift_right(m: Module, value: Value, amount: Value, kept: int) -> tuple[Value, Value]:
    """Return the low `kept` bits of a value shifted right, and whether a one was shifted out.

    Any amount is legal. The largest steps are first, so that high bits that can never reach the
    kept bits are not built.
    """
    lost = []
    near = (len(value) - 1).bit_length()
    if len(amount) > near:
        far, close = Signal(), Signal(len(value))
        m.d.comb += [
            far.eq(amount[near:].any()),
            close.eq(value & ~far.replicate(len(value))),
        ]
        # After a shift by more than the value's width, only the sticky bit remains.
        lost.append(far & value.any())
        value = close
    for level in reversed(range(min(near, len(amount)))):
        distance = 1 << level
        # Bits that no later level can move into the kept ones are dropped.
        fell, shifted = Signal(), Signal(min(len(value), kept + distance - 1))
        m.d.comb += [
            fell.eq(value[:distance].any() & amount[level]),
            shifted.eq(Mux(amount[level], value[distance:], value)),
        ]
        lost.append(fell)
        value = shifted
    return value, Cat(lost).any()


def shift_left(
    m: Module, value: Value, amount: Value, fill: Value, kept: int
) -> tuple[Value, Value, Value]:
    """Return the top `kept` bits of a value shifted left, and AND and OR of all bits below.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    value, amount : Value
        Value and shift distance.
    fill : Value
        Bit that is shifted in from the right.
    kept : int
        Number of bits to return.
    """
    ones, some = [], []
    for level in reversed(range(len(amount))):
        distance = 1 << level
        shifted = Signal(len(value))
        moved = Cat(fill.replicate(distance), value)
        m.d.comb += shifted.eq(Mux(amount[level], moved[: len(value)], value))
        # Below the kept bits, only those matter that the remaining levels can still move up.
        excess = len(value) - kept - (distance - 1)
        if excess > 0:
            ones.append(shifted[:excess].all())
            some.append(shifted[:excess].any())
            shifted = shifted[excess:]
        value = shifted
    return value, Cat(ones).all(), Cat(some).any()
