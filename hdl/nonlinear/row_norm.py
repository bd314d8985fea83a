"""Common parts of RMSNorm and layer norm: formats, dimensions, reciprocal root, weighting."""

from collections.abc import Sequence
from functools import cache
from typing import Annotated

import mpmath
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from hdl.arith.carry_save_sum import CarrySaveSum, column_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.multiply_add import multiply_add
from hdl.arith.reciprocal import normalised
from hdl.arith.saturating_add import saturate
from hdl.arith.table_interpolation import TableInterpolation, exact_breakpoints
from hdl.fixed_shape import FixedShape
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require

STATE = signed(16)
"""An element of a hidden state, in steps of its row's scale."""

OUTPUT = FixedPoint(integer_bits=6, fraction_bits=10)
"""A normalised and weighted element."""

EPSILON_BITS = 32
SQUARE_BITS = 31
FRACTION_BITS = 15
"""Fraction bits of the normalised sum of squares."""

ROOT_FRACTION = 16
"""Fraction bits of a reciprocal root."""

ROOT_STAGES = 3
"""Cycles from a sum to its reciprocal root: table address, and two in the interpolation."""

PIECES = 256
GUARD_BITS = 3

RATIO = signed(ROOT_FRACTION + 2)
"""An element divided by its row's deviation."""


@parameter_object
class RowNormParameters(Parameters):
    """Dimensions of a norm over rows.

    Parameters
    ----------
    lanes : int
        Elements per slice.
    width : int
        Elements of a hidden state, a multiple of `lanes` and at least two slices.
    weight_fraction : int
        Fraction bits of the 16-bit weights.
    rows : int
        Maximum number of complete rows, in flight or stored.
    weighed : bool
        Whether a register separates the product with the weight from its clamp. It adds a cycle of
        latency, and changes no value.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 32
    width: Annotated[int, Range(2, 8192, "elements")] = 4096
    weight_fraction: Annotated[int, Range(10, 15, "bits")] = 14
    rows: Annotated[int, Range(1, 16, "rows")] = 4
    weighed: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.width % self.lanes == 0, "width must be a multiple of lanes", self.width)
        require(self.width >= 2 * self.lanes, "width must be at least two slices", self.width)

    @property
    def slices(self) -> int:
        """Slices per hidden state."""
        return self.width // self.lanes

    @property
    def width_exponent(self) -> int:
        """The exponent of the smallest power of two that is at least the root of the width."""
        return ((self.width - 1).bit_length() + 1) // 2

    @property
    def ratio_fraction(self) -> int:
        """Fraction bits of an element divided by its row's deviation."""
        return ROOT_FRACTION - self.width_exponent

    @property
    def drop(self) -> int:
        """Number of bits dropped from a weighted element, including the half bit of the ratio."""
        return self.ratio_fraction + 1 + self.weight_fraction - OUTPUT.fraction_bits

    @property
    def squares_width(self) -> int:
        """Bits of a sum of squares and epsilon."""
        return (self.width * 4**15 + 2**EPSILON_BITS - 1).bit_length()

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a hidden state; `epsilon` is valid in a row's first slice."""
        values = data.ArrayLayout(STATE, self.lanes)
        return data.StructLayout({"values": values, "epsilon": EPSILON_BITS, "last": 1})

    @property
    def values_layout(self) -> data.ArrayLayout:
        """A slice of a hidden state in the buffer."""
        return data.ArrayLayout(STATE, self.lanes)

    @property
    def weights_layout(self) -> data.ArrayLayout:
        """A slice of weights."""
        weight = FixedShape(STATE.width, STATE.signed, self.weight_fraction)
        return data.ArrayLayout(weight, self.lanes)

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of normalised elements."""
        values = data.ArrayLayout(OUTPUT.shape, self.lanes)
        return data.StructLayout({"values": values, "last": 1})


@cache
def root_breakpoints(width: int, exponent: int) -> tuple[int, ...]:
    """Return ``sqrt(width) / 2**exponent / sqrt(x)`` for x from 1 to 4, 128 segments per octave.

    The root of the width in the table saves the division by the width.
    """

    def root(t: float) -> float:
        return mpmath.sqrt(width) / 2**exponent / mpmath.sqrt(max(1 + t, 2 * t))

    return exact_breakpoints(root, pieces=PIECES, width=2, scale=1 << ROOT_FRACTION + GUARD_BITS)


def row_sum(
    m: Module,
    addends: Sequence[Value],
    *,
    strobe: Value,
    begins: Value,
    start: Value | int,
    total: Signal,
) -> None:
    """Sum a row in `total`: `addends` of a slice in one cycle, its `strobe` in the next.

    Parameters
    ----------
    m : Module
        Module that receives the registers.
    addends : Sequence[Value]
        Addend of each lane.
    strobe, begins : Value
        The sum of a slice is valid; the slice is the first of its row.
    start : Value or int
        Initial value of a row's sum.
    total : Signal
        The sum, in the cycle after the strobe.
    """
    slice_sum = column_sum(m, addends)
    addend = Signal(slice_sum.shape(), name=f"{total.name}_addend", reset_less=True)
    m.d.sync += addend.eq(slice_sum)
    # The first slice of a row restarts the sum.
    grown = CarrySaveSum(m, len(total))
    grown.add(Mux(begins, start, total))
    grown.add(addend)
    result = grown.result()
    with m.If(strobe):
        m.d.sync += total.eq(result)


def divided_row_sum(
    m: Module,
    addends: Sequence[Value],
    *,
    strobe: Value,
    begins: Value,
    start: Value,
    total: Signal,
) -> None:
    """Sum a row as `row_sum`, in `total` one cycle later, with one carry chain after the sum.

    The row's sum is two numbers, to which full adders add the two of each slice.
    """
    width = len(total)
    slice_sum = CarrySaveSum(m, width)
    for addend in addends:
        slice_sum.add(addend)
    slice_pair = [Signal(width, name=f"{total.name}_slice_{i}", reset_less=True) for i in range(2)]
    row_pair = [Signal(width, name=f"{total.name}_row_{i}", reset_less=True) for i in range(2)]
    m.d.sync += [
        register.eq(value) for register, value in zip(slice_pair, slice_sum.parts(), strict=True)
    ]
    grown = CarrySaveSum(m, width)
    # The first slice of a row restarts the sum.
    grown.add(Mux(begins, start, row_pair[0]))
    grown.add(Mux(begins, 0, row_pair[1]))
    for value in slice_pair:
        grown.add(value)
    with m.If(strobe):
        m.d.sync += [
            register.eq(value) for register, value in zip(row_pair, grown.parts(), strict=True)
        ]
    result = CarrySaveSum(m, width)
    for value in row_pair:
        result.add(value)
    m.d.sync += total.eq(result.result())


def reciprocal_root(m: Module, total: Value, breakpoints: tuple[int, ...]) -> tuple[Value, Value]:
    """Return the mantissa of ``1 / sqrt(total)`` and its shift, `ROOT_STAGES` cycles later."""
    # The root halves the exponent; the factor of two of an odd exponent selects the second octave.
    fraction, exponent = normalised(m, total, FRACTION_BITS)
    place = Signal(FRACTION_BITS + 1, reset_less=True)
    m.submodules.root = root = TableInterpolation(
        breakpoints=breakpoints,
        offset_bits=FRACTION_BITS - (PIECES.bit_length() - 2),
        guard_bits=GUARD_BITS,
        stages=2,
    )
    m.d.sync += place.eq(Cat(fraction, exponent[0]))
    m.d.comb += root.a.eq(place)
    return root.result, delay_line(m, exponent[1:], ROOT_STAGES, name="shift")[-1]


def squared(m: Module, name: str, value: Value) -> Value:
    """Return the square of an element."""
    return multiply_add(m, name, value, value)[:SQUARE_BITS]


def weighted(
    m: Module,
    name: str,
    ratio: Value,
    weight: Value,
    p: RowNormParameters,
    *,
    enable: Value,
    bias: Value | None = None,
) -> Value:
    """Return an element times its weight, plus a bias in steps of the output, clamped.

    If `weighed`, the clamp is a cycle later than the product.
    """
    # The dropped fraction counts as half: one constant bit replaces a rounding adder.
    halves = Cat(Const(1, 1), ratio).as_signed()
    addend = None if bias is None else bias.shift_left(p.drop)
    product = multiply_add(m, name, halves, weight, addend, constant=1 << p.drop - 1) >> p.drop
    product = delay_line(m, product, int(p.weighed), name=f"{name}_product", enable=enable)[-1]
    clamped, _saturated = saturate(product, OUTPUT.shape)
    return clamped
