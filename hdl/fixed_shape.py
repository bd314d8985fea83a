"""Shapes of fixed-point numbers."""

from amaranth.hdl import Shape


class FixedShape(Shape):
    """A shape with a binary point, which the interface manifest specifies.

    Hardware is the same as with a plain shape, and both shapes are equal.

    Parameters
    ----------
    width : int
        Bits of a number.
    signed : bool
        Two's complement if true, unsigned otherwise.
    fraction_bits : int
        Bits below the binary point.
    """

    def __init__(self, width: int, signed: bool, fraction_bits: int) -> None:
        super().__init__(width, signed)
        self.fraction_bits = fraction_bits
