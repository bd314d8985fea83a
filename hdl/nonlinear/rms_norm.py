"""RMSNorm: a hidden state divided by its root mean square, times a weight."""

from functools import cache
from typing import Annotated, Any

import mpmath
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.reciprocal import normalised
from hdl.arith.saturating_add import saturate
from hdl.arith.table_interpolation import TableInterpolation, exact_breakpoints
from hdl.memory.row_buffer import RowBuffer
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit

STATE = signed(16)
"""An element of a hidden state, in steps of its row's own scale."""

OUTPUT = FixedPoint(integer_bits=6, fraction_bits=10)
"""A normalised and weighted element."""

EPSILON_BITS = 32
SQUARE_BITS = 31
FRACTION_BITS = 15
"""Fraction bits of the normalised sum of squares."""

ROOT_FRACTION = 16
"""Fraction bits of a reciprocal root."""

PIECES = 256
GUARD_BITS = 3
TURNAROUND = 8
"""Cycles from a row's last slice to the first place in the buffer that it sets free."""


@parameter_object
class RmsNormParameters(Parameters):
    """Dimensions of an RMSNorm unit; they also drive its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Elements in a slice.
    width : int
        Elements of a hidden state, a multiple of `lanes` and at least two slices.
    weight_fraction : int
        Fraction bits of the 16-bit weights.
    rows : int
        Complete rows under way or waiting at most.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 32
    width: Annotated[int, Range(2, 8192, "elements")] = 4096
    weight_fraction: Annotated[int, Range(10, 15, "bits")] = 14
    rows: Annotated[int, Range(1, 16, "rows")] = 4

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.width % self.lanes == 0, "width must be a multiple of lanes", self.width)
        require(self.width >= 2 * self.lanes, "width must be at least two slices", self.width)

    @property
    def slices(self) -> int:
        """Slices of a hidden state."""
        return self.width // self.lanes

    @property
    def sum_width(self) -> int:
        """Bits of a sum of squares and epsilon."""
        return (self.width * 4**15 + 2**EPSILON_BITS - 1).bit_length()

    @property
    def width_exponent(self) -> int:
        """The power of two that is at least the root of the width."""
        return ((self.width - 1).bit_length() + 1) // 2

    @property
    def root_breakpoints(self) -> tuple[int, ...]:
        """The table of reciprocal roots."""
        return root_breakpoints(self.width, self.width_exponent)

    @property
    def ratio_fraction(self) -> int:
        """Fraction bits of an element over the root mean square."""
        return ROOT_FRACTION - self.width_exponent

    @property
    def drop(self) -> int:
        """Bits that a weighted element loses: the ratio counts its half."""
        return self.ratio_fraction + 1 + self.weight_fraction - OUTPUT.fraction_bits

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a hidden state; `epsilon` counts in a row's first slice."""
        values = data.ArrayLayout(STATE, self.lanes)
        return data.StructLayout({"values": values, "epsilon": EPSILON_BITS, "last": 1})

    @property
    def values_layout(self) -> data.ArrayLayout:
        """A slice of weights, and of a hidden state in the buffer."""
        return data.ArrayLayout(STATE, self.lanes)

    @property
    def row_layout(self) -> data.StructLayout:
        """A row's reciprocal root: a mantissa and how far to shift."""
        mantissa = (max(self.root_breakpoints) >> GUARD_BITS).bit_length()
        return data.StructLayout(
            {"mantissa": unsigned(mantissa), "shift": range(self.sum_width // 2 + 1)}
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of normalised elements."""
        values = data.ArrayLayout(OUTPUT.shape, self.lanes)
        return data.StructLayout({"values": values, "last": 1})


@cache
def root_breakpoints(width: int, exponent: int) -> tuple[int, ...]:
    """Return ``sqrt(width) / 2**exponent / sqrt(x)`` for x from 1 to 4, 128 pieces an octave.

    The root of the width in the table saves the division by the width.
    """

    def root(t: Any) -> Any:
        return mpmath.sqrt(width) / 2**exponent / mpmath.sqrt(max(1 + t, 2 * t))

    return exact_breakpoints(root, pieces=PIECES, width=2, scale=1 << ROOT_FRACTION + GUARD_BITS)


class RmsNorm(Unit):
    """Hidden states over their root mean square, times weights, in slices of `lanes`.

    Element i of a row becomes ``x[i] * w[i] / sqrt(mean(x**2) + epsilon)``. The scale of a row
    cancels out, so every row may have its own and use all 16 bits; only epsilon depends on it.

    **Latency** 10 cycles from a row's last slice to its first result. **Throughput** one slice in
    and one out a cycle, also from row to row; but while `rows` complete rows are under way the next
    waits: `rows` rows of n slices take ``2 n + 5`` cycles at least, which with 4 of them rows
    shorter than 3 slices notice. A slice waits for its weights.

    **Numerics** the squares are summed exactly; the sum is normalised to 15 fraction bits (floor);
    its reciprocal root comes from a table of 256 breakpoints over two octaves, interpolated and
    rounded to 16 fraction bits; the product with x is floored to a ratio of 16 - log2(sqrt(width))
    fraction bits, of which the dropped part counts as half a unit; the product with the weight is
    rounded half up to Q6.10 and saturates. The error to the exact result y is at most ``0.5 *
    2**-10 + abs(w) * 2**-(ratio_fraction + 1) + 4e-5 * abs(y)``, where y does not saturate.

    Parameters
    ----------
    parameters : RmsNormParameters
        Dimensions.

    Members
    -------
    states : In(stream)
        `values` of a row of just `width` elements; `epsilon` in the row's first slice: width times
        the norm's epsilon in squared steps of x; `last` in its last slice.
    weights : In(stream)
        A slice of weights for each slice of states, 16 bits with `weight_fraction` of them.
    results : Out(stream)
        `values` in Q6.10, `last`.

    Raises
    ------
    ValueError
        By `RmsNormParameters`.
    """

    def __init__(self, *, parameters: RmsNormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "states": In(stream.Signature(parameters.slice_layout)),
                "weights": In(stream.Signature(parameters.values_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the first pass, the buffer and the second pass."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.values_layout,
            result_shape=p.row_layout,
            depth=p.slices + TURNAROUND,
            rows=p.rows,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Sum of squares and its reciprocal root; nothing here ever waits."""
        p = self.parameters
        states = self.states.payload
        take = self.states.valid & buffer.room
        m.d.comb += [
            self.states.ready.eq(buffer.room),
            buffer.take.eq(take),
            buffer.take_last.eq(states.last),
            buffer.write.strobe.eq(take),
            buffer.write.last.eq(states.last),
            buffer.write.data.eq(states.values),
        ]

        # First stage: flags travel beside the squares.
        begins = Signal(init=1)
        with m.If(take):
            m.d.sync += begins.eq(states.last)
        # Two registers, as many as between a slice and the sum of its squares.
        strobe = delay_line(m, take, 2, name="strobe", reset=True)[-1]
        flags = delay_line(m, Cat(begins, states.last), 2, name="flags")[-1]
        epsilon = delay_line(m, states.epsilon, 2, name="epsilon")[-1]

        squares = [Signal(SQUARE_BITS, name=f"square_{i}", reset_less=True) for i in range(p.lanes)]
        m.d.sync += [squares[i].eq(states.values[i] * states.values[i]) for i in range(p.lanes)]
        slice_sum = tree_sum(squares)
        addend = Signal(slice_sum.shape(), reset_less=True)
        total = Signal(p.sum_width, reset_less=True)
        m.d.sync += addend.eq(slice_sum)
        # A row's first slice starts from epsilon instead of the row before.
        with m.If(strobe):
            m.d.sync += total.eq(Mux(flags[0], epsilon, total) + addend)

        # The root halves the exponent; an odd one's factor of two selects the second octave.
        fraction, exponent = normalised(total, FRACTION_BITS)
        place = Signal(FRACTION_BITS + 1, reset_less=True)
        m.submodules.root = root = TableInterpolation(
            breakpoints=p.root_breakpoints,
            offset_bits=FRACTION_BITS - (PIECES.bit_length() - 2),
            guard_bits=GUARD_BITS,
            stages=2,
        )
        m.d.sync += place.eq(Cat(fraction, exponent[0]))
        m.d.comb += [root.a.eq(place), buffer.results.payload.mantissa.eq(root.result)]
        # The sum, its place in the table, and the two of the table.
        ended = delay_line(m, strobe & flags[1], 4, name="ended", reset=True)[-1]
        shift = delay_line(m, exponent[1:], 3, name="shift")[-1]
        m.d.comb += [buffer.results.valid.eq(ended), buffer.results.payload.shift.eq(shift)]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Multiply by the reciprocal root, then by the weights, which may be late."""
        p = self.parameters
        row = Signal(p.row_layout, reset_less=True)
        read, divided = Signal(), Signal()
        read_last, divided_last = Signal(reset_less=True), Signal(reset_less=True)
        # The last stage may fill while the others wait for weights.
        free = ~self.results.valid | self.results.ready
        move = free & (~divided | self.weights.valid)
        m.d.comb += [buffer.enable.eq(move), self.weights.ready.eq(free & divided)]

        ratio_shape = signed(ROOT_FRACTION + 2)
        out = self.results.payload
        with m.If(move):
            m.d.sync += [
                row.eq(buffer.result),
                read.eq(buffer.valid),
                read_last.eq(buffer.last),
                divided.eq(read),
                divided_last.eq(read_last),
            ]
        with m.If(free):
            m.d.sync += [
                self.results.valid.eq(divided & self.weights.valid),
                out.last.eq(divided_last),
            ]
        for i in range(p.lanes):
            ratio = Signal(ratio_shape, name=f"ratio_{i}", reset_less=True)
            with m.If(move):
                m.d.sync += ratio.eq((buffer.data[i] * row.mantissa) >> row.shift)
            # What floor took away counts as half: one constant bit instead of a rounding adder.
            halves = Cat(Const(1, 1), ratio).as_signed()
            weighted = halves * self.weights.payload[i] + (1 << p.drop - 1)
            clamped, _saturated = saturate(weighted >> p.drop, OUTPUT.shape)
            with m.If(free):
                m.d.sync += out.values[i].eq(clamped)
