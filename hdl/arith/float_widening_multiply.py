"""Exact product of two narrow floating-point numbers in a wide format."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import product
from hdl.arith.float_cut import cut
from hdl.arith.float_format import BINARY16, BINARY32, FloatFormat
from hdl.arith.float_normalise import normalised
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require


@dataclass(frozen=True)
class Factor:
    """A factor with a normalised significand, subnormal or not.

    Members
    -------
    sign : Value
        1 if negative.
    exponent : Value
        Signed exponent code, at most 0 for a subnormal. The largest code means infinity or NaN,
        depending on the mantissa.
    significand : Value
        Mantissa with its leading one; 0 for a zero.
    """

    sign: Value
    exponent: Value
    significand: Value


def factor(m: Module, number_format: FloatFormat, code: ValueLike) -> Factor:
    """Decode and normalise a factor."""
    operand = unpack(m, number_format, code, saturate=False)
    significand, exponent = normalised(operand)
    wide = Signal(signed(number_format.exponent_bits + 1))
    m.d.comb += wide.eq(exponent)
    return Factor(operand.sign, wide, significand)


def exact_product(
    m: Module, factor_format: FloatFormat, product_format: FloatFormat, a: Factor, b: Factor
) -> Value:
    """Return the code of the product of two factors, which is exact.

    Every product is a normal number in the wide format. So zero is the only special case of the
    arithmetic, and the only shift is by one bit.
    """
    integer = product(m, a.significand, b.significand)
    top = integer[-1]
    fraction = Mux(top, integer[:-1], Cat(Const(0, 1), integer[:-2]))
    exponent = Signal(product_format.exponent_bits)
    offset = product_format.bias - 2 * factor_format.bias
    m.d.comb += exponent.eq(a.exponent + b.exponent + offset)

    a_special, b_special = (_largest(factor_format, part) for part in (a, b))
    a_zero, b_zero = ~a.significand[-1], ~b.significand[-1]
    nan, special, nothing = Signal(), Signal(), Signal()
    m.d.comb += [
        special.eq(a_special | b_special),
        nan.eq(
            (a_special & (a.significand[:-1].any() | b_zero))
            | (b_special & (b.significand[:-1].any() | a_zero))
        ),
        nothing.eq(a_zero | b_zero),
    ]
    number = ~(special | nothing)
    quiet = product_format.mantissa_bits - 1
    spare = product_format.mantissa_bits - len(fraction)
    mantissa = Cat(Const(0, spare), fraction & number.replicate(len(fraction)))
    raised = Mux(top, exponent + 1, exponent)[: len(exponent)]
    return Cat(
        mantissa[:quiet],
        mantissa[quiet] | nan,
        (raised & number.replicate(len(raised))) | special.replicate(len(raised)),
        (a.sign ^ b.sign) & ~nan,
    )


def _largest(number_format: FloatFormat, part: Factor) -> Value:
    """Return whether a factor has the exponent code of infinities and NaNs."""
    return part.exponent[:-1].all() & ~part.exponent[-1]


class FloatWideningMultiply(Operator):
    """Product of two floating-point numbers, exact in a wider format.

    Subnormal factors are normalised before the multiplication; the product needs no alignment and
    no rounding.

    **Latency** `stages` cycles. **Throughput** one product per cycle. **Numerics** exact;
    infinities and NaNs by IEEE 754, every NaN result is the quiet NaN with sign 0.

    Parameters
    ----------
    factor_format : FloatFormat
        Format of the factors; a signed IEEE format.
    product_format : FloatFormat
        Format of the product; a signed IEEE format in which every product is exact and normal.
    stages : int
        Pipeline stages. The first registers the result, the second holds the normalised factors.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(factor_format.layout)
        The factors.
    result : Out(product_format.layout)
        The product.

    Raises
    ------
    ValueError
        If a parameter is illegal, or a product can be inexact or subnormal in the wide format.
    """

    def __init__(
        self,
        *,
        factor_format: FloatFormat = BINARY16,
        product_format: FloatFormat = BINARY32,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("factor_format", factor_format)
        require_ieee("product_format", product_format)
        require(
            holds_products(factor_format, product_format),
            "every product of two factors must be exact and normal in the product's format",
            (factor_format, product_format),
        )
        self.factor_format = factor_format
        self.product_format = product_format
        members = {
            "a": In(factor_format.layout),
            "b": In(factor_format.layout),
            "result": Out(product_format.layout),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Normalise the factors, multiply."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        a, b = cut(
            pipeline,
            factor(m, self.factor_format, self.a),
            factor(m, self.factor_format, self.b),
        )
        code = exact_product(m, self.factor_format, self.product_format, a, b)
        m.d.comb += self.result.eq(pipeline.cut(code)[0])
        return m


def holds_products(factor_format: FloatFormat, product_format: FloatFormat) -> bool:
    """Return whether every product of two factors is exact and normal in a format."""
    least = 2 * factor_format.smallest_power + product_format.bias
    most = 2 * (factor_format.exponent_mask - factor_format.bias) + product_format.bias
    return (
        2 * factor_format.significand_bits <= product_format.significand_bits
        and least >= 1
        and most < product_format.exponent_mask
    )
