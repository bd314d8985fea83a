"""Reciprocal of the softmax denominator: a seed table and one Newton step."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Value, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.named import named
from hdl.arith.operator import Operator
from hdl.parameters import require_range

ADDRESS_BITS = 6
SEED_BITS = 8
MANTISSA_BITS = 15
SEEDS = tuple(
    round((1 << SEED_BITS) / (1 + (index + 0.5) / (1 << ADDRESS_BITS)))
    for index in range(1 << ADDRESS_BITS)
)
"""Reciprocals at the midpoints of 64 equal segments of [1, 2), in units of 2**-8."""


class Reciprocal(Operator):
    """The reciprocal of a positive integer as mantissa and exponent.

    ``1 / a = mantissa * 2**-15 * 2**-exponent``, where ``mantissa * 2**-15`` is in [1/2, 1).

    **Latency** `stages` cycles. **Throughput** one result per cycle.

    **Numerics** a is normalised to D = 1.x with 15 fraction bits (floor). The seed r is read from a
    table of 64 entries of 8 bits. The result is ``r + floor(r * floor(1 - D * r))`` with 15
    fraction bits, minus one unit. It is at most ``1 / D - 2**-15``, so that rounding to nearest by
    a caller never reaches 1. The relative error to 1/a is between -2.0e-4 and 0. The reciprocal of
    zero is undefined.

    Parameters
    ----------
    width : int
        Bits of the operand, 16 to 64.
    stages : int
        Pipeline stages: after the normalisation, after the Newton residue, and at the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(width)
        The integer.
    mantissa : Out(15)
        Reciprocal of the normalised operand.
    exponent : Out(range(width))
        Position of the operand's highest one.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, width: int, stages: int = 0, enable: bool = False) -> None:
        require_range("width", width, MANTISSA_BITS + 1, 64)
        self.width = width
        members = {"a": In(width), "mantissa": Out(MANTISSA_BITS), "exponent": Out(range(width))}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Normalise, cut, look up and compute the residue, cut, correct, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        fraction, exponent = normalised(m, self.a, MANTISSA_BITS)
        fraction, exponent = pipeline.cut(fraction, exponent)

        address = fraction[-ADDRESS_BITS:]
        seed = Array(Const(value, SEED_BITS) for value in SEEDS)[address]
        # A table of the negative seeds saves a negation after the product.
        negative = Array(Const(-value, signed(SEED_BITS + 1)) for value in SEEDS)[address]
        # Newton: r' = r + r * (1 - D * r). One step squares the relative error of the table.
        # D * r is within 2**-6 of 1, so the bits above the binary point only repeat the sign.
        residue_bits = MANTISSA_BITS - 4
        product = CarrySaveSum(m, SEED_BITS + residue_bits)
        product.add_product(Cat(fraction, Const(1, 1)), negative)
        residue = product.result()[SEED_BITS:].as_signed()
        seed, residue, exponent = pipeline.cut(seed, residue, exponent)

        # Subtract one unit, so that rounding to nearest by a caller never reaches 1. The product's
        # fraction is dropped after the sum, which therefore has a single carry chain.
        raised = CarrySaveSum(m, SEED_BITS + MANTISSA_BITS)
        raised.add_product(residue, seed)
        raised.add(Cat(Const(0, MANTISSA_BITS), seed))
        raised.add(-1 << SEED_BITS)
        mantissa, exponent = pipeline.cut(raised.result()[SEED_BITS:], exponent)
        m.d.comb += [self.mantissa.eq(mantissa), self.exponent.eq(exponent)]
        return m


def normalised(m: Module, value: Value, bits: int) -> tuple[Value, Value]:
    """Return the `bits` below the highest one, and the position of that one.

    The shift is a tree of halving steps. Bits below the value's lowest bit are zero.
    """
    width = len(value)
    levels = (width - 1).bit_length()
    # Each level shifts by half the rest if the top half is zero; the shifts add up to the count.
    missing = []
    for level in reversed(range(levels)):
        step = 1 << level
        empty = named(m, ~value[-step:].any())
        value = named(m, Mux(empty, Cat(Const(0, step), value[:-step]), value), "shifted")
        missing.append(empty)
    position = (width - 1 - Cat(*reversed(missing)))[:levels]
    padded = Cat(Const(0, max(bits + 1 - width, 0)), value)
    return padded[-1 - bits : -1], position
