"""Width and range of integer shapes."""

from amaranth.hdl import Cat, Const, Shape, Value, ValueLike


def extremes(shape: Shape) -> tuple[int, int]:
    """Return the smallest and the largest integer of a shape."""
    if shape.signed:
        return -(1 << (shape.width - 1)), (1 << (shape.width - 1)) - 1
    return 0, (1 << shape.width) - 1


def resized(value: ValueLike, width: int) -> Value:
    """Return the low `width` bits of a value, sign- or zero-extended if it has fewer."""
    value = Value.cast(value)
    top = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, top.replicate(max(width - len(value), 0)))[:width]


def constant(value: int, width: int) -> Const:
    """Return an unsigned constant of exactly `width` bits, two's complement if negative.

    Raises
    ------
    ValueError
        If the value does not fit; Amaranth itself would truncate it silently.
    """
    if not -(1 << (width - 1)) <= value < 1 << width:
        raise ValueError(f"a constant must fit in {width} bits, not {value!r}")
    return Const(value % (1 << width), width)
