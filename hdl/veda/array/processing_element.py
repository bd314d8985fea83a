"""VEDA's processing elements: a multiplier, an adder, and what the adder may be given.

Section 4 and Figure 5 (a) of the paper. The adder is a pipeline, so an element holds as many
interleaved partial sums as the adder has stages: what leaves it is what enters it next.
"""

from dataclasses import fields
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32, FP29, FloatFormat
from hdl.arith.float_normal_add import FloatNormalAdd
from hdl.arith.float_widening_multiply import Factor, exact_product, factor, holds_products
from hdl.parameters import require, require_choice, require_range
from hdl.unit import Unit


class ElementMode(enum.Enum, shape=2):
    """What an element does with the partial sum that leaves its adder."""

    DISABLE = 0
    """Hold it."""

    CLEAR = 1
    """Forget it: the product starts a new partial sum, or nothing does if it is not valid."""

    LOCAL = 2
    """Add the product to it."""

    TRANSMIT = 3
    """Add what other elements transmit; the partial sum is forgotten."""


class ElementType(enum.Enum):
    """Which operands of an element's adder may be foreign."""

    A = "a"
    """The second: the adder always takes the element's own product."""

    B = "b"
    """Both."""


class ProcessingElement(Unit):
    """Multiply two FP16 numbers and add the product to a partial sum, or add what others transmit.

    The adder takes the product register and, by `mode`, one of: what leaves it (DISABLE, LOCAL),
    the neutral element -0 (CLEAR), `transmitted` (TRANSMIT). Type B takes in TRANSMIT
    `transmitted_product` instead of its own product, which it still emits. Without `valid` the
    product register takes -0, with `fold` the sum that leaves the adder: in the next cycle it meets
    the one behind it, and so the interleaved partial sums become one.

    **Latency** `multiply_stages` cycles from the weight to `product`, `add_stages` more to `sum`.
    **Throughput** one multiply-add a cycle. **Numerics** with a `sum_format` that holds every
    product of two FP16 numbers exactly, as FP29 and FP32 do, one rounding a sum and none a product;
    with FP16 one rounding each. To nearest, ties to even; subnormals, infinities and NaNs by IEEE
    754, every NaN being the quiet NaN of sign 0.

    Parameters
    ----------
    element_type : ElementType
        Which operands of the adder may be foreign.
    sum_format : FloatFormat
        Of products and sums: FP16, or a format in which products are exact and normal.
    multiply_stages : int
        2: factors and product; 3: a stage more behind the multiplication.
    add_stages : int
        Pipeline stages of the adder, and interleaved partial sums, 2 to 4.

    Members
    -------
    weight : In(FP16)
        A new factor each cycle.
    scalar, vector : In(FP16)
        What the other factor may become.
    load : In(1)
        The other factor is replaced, else it stays.
    broadcast : In(1)
        What it is replaced by: `scalar`, else `vector`. Unlike `load` it may not come late.
    mode : In(ElementMode)
        For the weight of ``multiply_stages - 1`` cycles ago.
    valid, fold : In(1)
        With `mode`: the product register takes the product, or the sum.
    transmitted : In(sum_format)
        In the cycle behind `mode`: the adder's second operand.
    transmitted_product : In(sum_format)
        The same for the first operand; only of type B.
    product, sum : Out(sum_format)
        The product register; what leaves the adder.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        element_type: ElementType,
        sum_format: FloatFormat = FP29,
        multiply_stages: int = 2,
        add_stages: int = 3,
    ) -> None:
        require_choice("element_type", element_type, tuple(ElementType))
        require_element(sum_format, multiply_stages, add_stages)
        self.element_type = element_type
        self.sum_format = sum_format
        self.multiply_stages = multiply_stages
        self.add_stages = add_stages
        half, code = BINARY16.layout, sum_format.layout
        foreign = {"transmitted_product": In(code)} if element_type is ElementType.B else {}
        super().__init__(
            {
                "weight": In(half),
                "scalar": In(half),
                "vector": In(half),
                "load": In(1),
                "broadcast": In(1),
                "mode": In(ElementMode),
                "valid": In(1),
                "fold": In(1),
                "transmitted": In(code),
                **foreign,
                "product": Out(code),
                "sum": Out(code),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Place the factors, the product register and the adder with its choices."""
        m = Module()
        adder_class = FloatNormalAdd if holds_products(BINARY16, self.sum_format) else FloatAdd
        adder = adder_class(number_format=self.sum_format, stages=self.add_stages)
        m.submodules.adder = adder
        total = Value.cast(adder.result)

        # What the adder takes is decided a cycle ahead: the choice hangs on registers.
        taken = self.valid & (self.mode != ElementMode.DISABLE)
        product = Signal(len(total), reset_less=True)
        clears, transmits = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            product.eq(chosen((taken, self._product(m)), (self.fold, total))),
            clears.eq(self.mode == ElementMode.CLEAR),
            transmits.eq(self.mode == ElementMode.TRANSMIT),
        ]
        # Type B: a node of the tree that adds two sums of others.
        first: Value = product
        if self.element_type is ElementType.B:
            first = Mux(transmits, self.transmitted_product, product)
        m.d.comb += [
            adder.a.eq(first),
            adder.b.eq(
                chosen((transmits, Value.cast(self.transmitted)), (~(clears | transmits), total))
            ),
            self.product.eq(product),
            self.sum.eq(total),
        ]
        return m

    def _product(self, m: Module) -> Value:
        """Keep the factors, and return their product in the format of the sums."""
        # The factors are unpacked before their registers: only the multiplication is behind them.
        operand = Mux(self.broadcast, self.scalar.as_value(), self.vector.as_value())
        other = _kept(m, "other", factor(m, BINARY16, operand), self.load)
        weight = _kept(m, "weight", factor(m, BINARY16, self.weight), Const(1, 1))
        wide = holds_products(BINARY16, self.sum_format)
        exact_format = self.sum_format if wide else BINARY32
        code = exact_product(m, BINARY16, exact_format, other, weight)
        # A product of FP16 numbers is exact in FP32: nothing is rounded before the sums.
        if self.multiply_stages == 3:
            behind = Signal(len(code), name="exact", reset_less=True)
            m.d.sync += behind.eq(code)
            code = behind
        if not wide:
            m.submodules.narrow = narrow = FloatConvert(source=exact_format, target=self.sum_format)
            m.d.comb += narrow.a.eq(code)
            code = Value.cast(narrow.result)
        return code


def require_element(sum_format: FloatFormat, multiply_stages: int, add_stages: int) -> None:
    """Check what all elements of an array share.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """
    require(
        isinstance(sum_format, FloatFormat)
        and (sum_format == BINARY16 or holds_products(BINARY16, sum_format)),
        "sum_format must be FP16 or hold every product of two FP16 numbers",
        sum_format,
    )
    require_range("multiply_stages", multiply_stages, 2, 3)
    require_range("add_stages", add_stages, 2, 4)


def chosen(*choices: tuple[Value, Value]) -> Value:
    """Return the value whose condition is true, or -0, which changes no sum, if none is.

    No two conditions may be true at once.
    """
    width = len(choices[0][1])
    # Masks and an or: -0 is only the sign bit, so that "none of them" costs one gate.
    masked = [value & condition.replicate(width) for condition, value in choices]
    joined = reduce(or_, masked)
    nothing = ~reduce(or_, (condition for condition, _value in choices))
    return Cat(joined[:-1], joined[-1] | nothing)


def _kept(m: Module, name: str, new: Factor, enable: Value) -> Factor:
    """Return a register of a factor."""
    registers = {}
    for field in fields(new):
        value = getattr(new, field.name)
        registers[field.name] = Signal(value.shape(), name=f"{name}_{field.name}", reset_less=True)
        with m.If(enable):
            m.d.sync += registers[field.name].eq(value)
    return Factor(**registers)
