"""RMSNorm: a hidden state divided by its root mean square, times a weight."""

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import divided_product, multiply_add
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.nonlinear.row_norm import (
    GUARD_BITS,
    RATIO,
    ROOT_STAGES,
    SQUARE_BITS,
    RowNormParameters,
    divided_row_sum,
    reciprocal_root,
    root_breakpoints,
    row_sum,
    squared,
    weighted,
)
from hdl.parameters import option, parameter_object
from hdl.unit import Unit

TURNAROUND = 8
"""Cycles from a row's last slice to the first buffer entry that the row frees."""


@parameter_object
class RmsNormParameters(RowNormParameters):
    """Dimensions of an RMSNorm unit, shared with its golden model and its testbench.

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
        As in `RowNormParameters`.
    divided : bool
        Whether registers divide the sum of the squares, before its carry chain, and the product
        with the reciprocal root, in the middle and before its shift. They add 3 cycles of latency,
        and change no value.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    divided: bool = option(default=False)

    @property
    def root_breakpoints(self) -> tuple[int, ...]:
        """The table of reciprocal roots."""
        return root_breakpoints(self.width, self.width_exponent)

    @property
    def row_layout(self) -> data.StructLayout:
        """A row's reciprocal root as a mantissa and a shift."""
        mantissa = (max(self.root_breakpoints) >> GUARD_BITS).bit_length()
        return data.StructLayout(
            {"mantissa": unsigned(mantissa), "shift": range(self.squares_width // 2 + 1)}
        )


class RmsNorm(Unit):
    """Hidden states divided by their root mean square, times weights, in slices of `lanes`.

    Element i of a row becomes ``x[i] * w[i] / sqrt(mean(x**2) + epsilon)``. The scale of a row
    cancels, so every row may have its own scale and use all 16 bits; only epsilon depends on it.

    **Latency** 10 cycles from a row's last slice to its first result, 13 if
    `divided`.
    **Throughput** one slice in and one slice out per cycle, also across rows. While `rows` complete
    rows are in flight, the next row waits: `rows` rows of n slices take at least ``2 n + 5``
    cycles, which with 4 rows limits rows of fewer than 3 slices. A slice waits for its weights.

    **Numerics** the squares are summed exactly. The sum is normalised to 15 fraction bits (floor).
    Its reciprocal root is interpolated in a table of 256 breakpoints over two octaves and rounded
    to 16 fraction bits. The product with x is floored to a ratio of 16 - log2(sqrt(width)) fraction
    bits; the dropped part counts as half a unit. The product with the weight is rounded half up to
    Q6.10 and saturates. The error relative to the exact result y is at most ``0.5 * 2**-10 + abs(w)
    * 2**-(ratio_fraction + 1) + 4e-5 * abs(y)``, unless y saturates.

    Parameters
    ----------
    parameters : RmsNormParameters
        Row width, number of lanes and formats.

    Members
    -------
    states : In(stream)
        The `values` of a row of exactly `width` elements; `epsilon` in the row's first slice: width
        times the norm's epsilon in squared steps of x; `last` in its last slice.
    weights : In(stream)
        A slice of weights for each slice of states, 16 bits with `weight_fraction` fraction bits.
    results : Out(stream)
        `values` in Q6.10, `last`.

    Raises
    ------
    ValueError
        If `RmsNormParameters` rejects a value.
    """

    def __init__(self, *, parameters: RmsNormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "states": In(stream.Signature(parameters.slice_layout)),
                "weights": In(stream.Signature(parameters.weights_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the first pass, the buffer and the second pass."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.values_layout,
            result_shape=p.row_layout,
            depth=p.slices + TURNAROUND + int(p.divided),
            rows=p.rows,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute the sum of squares and its reciprocal root; this pass never stalls."""
        p = self.parameters
        states = self.states.payload
        take = take_slices(m, buffer, self.states)

        # First stage: flags are delayed in parallel with the squares.
        begins = Signal(init=1)
        with m.If(take):
            m.d.sync += begins.eq(states.last)
        # The two registers match those between a slice and the sum of its squares.
        strobe = delay_line(m, take, 2, name="strobe", reset=True)[-1]
        flags = delay_line(m, Cat(begins, states.last), 2, name="flags")[-1]
        epsilon = delay_line(m, states.epsilon, 2, name="epsilon")[-1]

        squares = [Signal(SQUARE_BITS, name=f"square_{i}", reset_less=True) for i in range(p.lanes)]
        m.d.sync += [
            squares[i].eq(squared(m, f"squared_{i}", states.values[i])) for i in range(p.lanes)
        ]
        total = Signal(p.squares_width, reset_less=True)
        stages = 1 + ROOT_STAGES + int(p.divided)
        if p.divided:
            divided_row_sum(m, squares, strobe=strobe, begins=flags[0], start=epsilon, total=total)
        else:
            row_sum(m, squares, strobe=strobe, begins=flags[0], start=epsilon, total=total)
        mantissa, shift = reciprocal_root(m, total, p.root_breakpoints)
        ended = delay_line(m, strobe & flags[1], stages, name="ended", reset=True)[-1]
        m.d.comb += [
            buffer.results.valid.eq(ended),
            buffer.results.payload.mantissa.eq(mantissa),
            buffer.results.payload.shift.eq(shift),
        ]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Multiply by the reciprocal root, then by the weights, which may arrive late."""
        p = self.parameters
        row = Signal(p.row_layout, reset_less=True)
        read, divided = Signal(), Signal()
        read_last, divided_last = Signal(reset_less=True), Signal(reset_less=True)
        move = Signal()

        def held(value: Value, name: str, *, reset: bool = False) -> Value:
            """Return a value of the product's cycle in the cycle of the shift."""
            return delay_line(m, value, 2 * p.divided, name=name, enable=move, reset=reset)[-1]

        # The last stage may load while the other stages wait for weights.
        free = ~self.results.valid | self.results.ready
        m.d.comb += [
            move.eq(free & (~divided | self.weights.valid)),
            buffer.enable.eq(move),
            self.weights.ready.eq(free & divided),
        ]
        shift = held(row.shift, "held_shift")
        out = self.results.payload
        with m.If(move):
            m.d.sync += [
                row.eq(buffer.result),
                read.eq(buffer.valid),
                read_last.eq(buffer.last),
                divided.eq(held(read, "multiplied", reset=True)),
                divided_last.eq(held(read_last, "multiplied_last")),
            ]
        weighed, cycles = divided & self.weights.valid, int(p.weighed)
        weighed = delay_line(m, weighed, cycles, name="weighed", enable=free, reset=True)[-1]
        weighed_last = delay_line(m, divided_last, cycles, name="weighed_last", enable=free)[-1]
        with m.If(free):
            m.d.sync += [self.results.valid.eq(weighed), out.last.eq(weighed_last)]
        for i in range(p.lanes):
            ratio = Signal(RATIO, name=f"ratio_{i}", reset_less=True)
            factors = f"scale_{i}", buffer.data[i], row.mantissa
            if p.divided:
                scaled = divided_product(m, *factors, enable=move)
                # A register before the shift.
                scaled = delay_line(m, scaled, 1, name=f"product_{i}", enable=move)[-1]
            else:
                scaled = multiply_add(m, *factors)
            result = weighted(m, f"weight_{i}", ratio, self.weights.payload[i], p, enable=free)
            with m.If(move):
                m.d.sync += ratio.eq(scaled >> shift)
            with m.If(free):
                m.d.sync += out.values[i].eq(result)
