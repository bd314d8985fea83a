"""Shifters of the floating-point operators, which also say what lies beyond the bits they keep."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def shift_right(m: Module, value: Value, amount: Value, kept: int) -> tuple[Value, Value]:
    """Return the low `kept` bits of a value shifted right, and whether a one fell off its end.

    Any amount is legal; the largest steps come first, so that high bits that cannot come down to
    those kept are never built.
    """
    lost = []
    near = (len(value) - 1).bit_length()
    if len(amount) > near:
        far, close = Signal(), Signal(len(value))
        m.d.comb += [
            far.eq(amount[near:].any()),
            close.eq(value & ~far.replicate(len(value))),
        ]
        # A shift beyond the value leaves nothing of it but the sticky bit.
        lost.append(far & value.any())
        value = close
    for level in reversed(range(min(near, len(amount)))):
        distance = 1 << level
        # Bits that no later level can bring into the kept ones are not carried along.
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
    """Return the top `kept` bits of a value shifted left, and whether all and any below are ones.

    Parameters
    ----------
    m : Module
        Where the logic goes.
    value, amount : Value
        The operands.
    fill : Value
        The bit that moves in from the right.
    kept : int
        Bits to return.
    """
    ones, some = [], []
    for level in reversed(range(len(amount))):
        distance = 1 << level
        shifted = Signal(len(value))
        moved = Cat(fill.replicate(distance), value)
        m.d.comb += shifted.eq(Mux(amount[level], moved[: len(value)], value))
        # Below the bits kept only those matter that the steps to come can still lift.
        excess = len(value) - kept - (distance - 1)
        if excess > 0:
            ones.append(shifted[:excess].all())
            some.append(shifted[:excess].any())
            shifted = shifted[excess:]
        value = shifted
    return value, Cat(ones).all(), Cat(some).any()
