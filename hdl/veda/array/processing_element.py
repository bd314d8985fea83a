"""VEDA's processing elements (PEs): a multiplier, an adder, and the multiplexers of its operands.

Section IV and Figure 5 (a) of the paper. The adder is pipelined, so a PE holds as many interleaved
partial sums as the adder has stages: the adder's output is its next operand.
"""

from dataclasses import fields
from functools import reduce
from operator import or_

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
    """The paper's 2-bit control of a PE: the adder's operand for the partial sum at its output."""

    DISABLE = 0
    """Hold the partial sum."""

    CLEAR = 1
    """Discard the partial sum; a valid product starts a new one."""

    LOCAL = 2
    """Add the product to the partial sum."""

    TRANSMIT = 3
    """Add the sums that other PEs transmit; discard the partial sum."""


class ElementType(enum.Enum):
    """The paper's PE types: the adder operands that may be transmitted by other PEs."""

    A = "a"
    """The second operand; the first is always the PE's own product."""

    B = "b"
    """Both operands."""


class ProcessingElement(Unit):
    """Multiply two FP16 numbers and add the product to a partial sum, or add transmitted sums.

    The adder's first operand is the product register. `mode` selects the second operand: the
    adder's output (DISABLE, LOCAL), the neutral element -0 (CLEAR), or `transmitted` (TRANSMIT). In
    TRANSMIT, a type-B PE replaces its own product by `transmitted_product`; it still outputs its
    product. Without `valid` the product register loads -0. With `fold` it loads the adder's output,
    which is added in the next cycle to the partial sum that follows it: this reduces the
    interleaved partial sums to one.

    **Latency** `multiply_stages` cycles from the weight to `product`, `add_stages` more to `sum`.
    **Throughput** one multiply-add per cycle. **Numerics** with a `sum_format` that represents
    every product of two FP16 numbers exactly, such as FP29 and FP32, one rounding per sum and none
    per product; with FP16 one rounding for each. To nearest, ties to even; subnormals, infinities
    and NaNs follow IEEE 754, and every NaN is the quiet NaN of sign 0.

    Parameters
    ----------
    element_type : ElementType
        Adder operands that may be transmitted by other PEs.
    sum_format : FloatFormat
        Format of products and sums: FP16, or a format in which FP16 products are exact and normal.
    multiply_stages : int
        2: registers of the factors and of the product; 3: one more stage after the multiplication.
    add_stages : int
        Pipeline stages of the adder, and interleaved partial sums, 2 to 4.

    Members
    -------
    weight : In(FP16)
        First factor, new in each cycle.
    scalar, vector : In(FP16)
        Candidates for the second factor.
    load : In(1)
        Load the second factor; otherwise it is held.
    broadcast : In(1)
        The second factor to load: `scalar` if 1, `vector` if 0. Off the critical path, unlike
        `load`.
    mode : In(ElementMode)
        Mode for the weight of ``multiply_stages - 1`` cycles ago.
    valid, fold : In(1)
        With `mode`: the product register loads the product, or the sum.
    transmitted : In(sum_format)
        The adder's second operand, in the cycle after `mode`.
    transmitted_product : In(sum_format)
        The adder's first operand, in the cycle after `mode`; type B only.
    product, sum : Out(sum_format)
        The product register; the adder's output.

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

    def elaborate(self, platform: object) -> Module:
        """Connect the factors, the product register, and the adder with its multiplexers."""
        m = Module()
        adder_class = FloatNormalAdd if holds_products(BINARY16, self.sum_format) else FloatAdd
        adder = adder_class(number_format=self.sum_format, stages=self.add_stages)
        m.submodules.adder = adder
        total = Value.cast(adder.result)

        # The adder's operands are selected one cycle ahead, so that the multiplexers start at
        # registers.
        taken = self.valid & (self.mode != ElementMode.DISABLE)
        product = Signal(len(total), reset_less=True)
        clears, transmits = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            product.eq(chosen((taken, self._product(m)), (self.fold, total))),
            clears.eq(self.mode == ElementMode.CLEAR),
            transmits.eq(self.mode == ElementMode.TRANSMIT),
        ]
        # Type B: a node of the tree that adds the sums of two other PEs.
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
        """Register the factors and return their product in the format of the sums."""
        # The factors are unpacked before their registers: only the multiplication follows them.
        operand = Mux(self.broadcast, self.scalar.as_value(), self.vector.as_value())
        other = _kept(m, "other", factor(m, BINARY16, operand), self.load)
        weight = _kept(m, "weight", factor(m, BINARY16, self.weight), Const(1, 1))
        wide = holds_products(BINARY16, self.sum_format)
        exact_format = self.sum_format if wide else BINARY32
        code = exact_product(m, BINARY16, exact_format, other, weight)
        # A product of FP16 numbers is exact in FP32: nothing is rounded before the sums.
        if self.multiply_stages == 3:
            registered = Signal(len(code), name="exact", reset_less=True)
            m.d.sync += registered.eq(code)
            code = registered
        if not wide:
            m.submodules.narrow = narrow = FloatConvert(source=exact_format, target=self.sum_format)
            m.d.comb += narrow.a.eq(code)
            code = Value.cast(narrow.result)
        return code


def require_element(sum_format: FloatFormat, multiply_stages: int, add_stages: int) -> None:
    """Check the parameters that all PEs of an array share.

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
    """Return the value whose condition is true; if none is, return -0, which changes no sum.

    At most one condition may be true.
    """
    width = len(choices[0][1])
    # AND-OR selection: -0 is the sign bit alone, so the default costs one gate.
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
