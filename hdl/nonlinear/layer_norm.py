"""Layer norm: a hidden state minus its mean, over its deviation, times a weight, plus a bias."""

from amaranth.hdl import Cat, Module, Shape, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import multiply_add
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.nonlinear.row_norm import (
    GUARD_BITS,
    OUTPUT,
    RATIO,
    ROOT_STAGES,
    SQUARE_BITS,
    STATE,
    RowNormParameters,
    reciprocal_root,
    root_breakpoints,
    row_sum,
    squared,
    weighted,
)
from hdl.parameters import option, parameter_object
from hdl.unit import Unit

SPREAD_STAGES = 2
"""Cycles from a row's sums to its squared deviation."""

TURNAROUND = 10
"""Cycles from a row's last slice to the first buffer entry that the row frees."""


@parameter_object
class LayerNormParameters(RowNormParameters):
    """Dimensions of a layer norm unit, shared with its golden model and its testbench.

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
    registered : bool
        Whether a register separates the product with the reciprocal deviation from its shift. It
        adds a cycle of latency, and changes no value.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    registered: bool = option(default=False)

    @property
    def root_breakpoints(self) -> tuple[int, ...]:
        """The table of reciprocal roots."""
        return root_breakpoints(1, 0)

    @property
    def sum_shape(self) -> Shape:
        """The sum of a row."""
        return signed(STATE.width + (self.width - 1).bit_length())

    @property
    def spread_width(self) -> int:
        """Bits of a row's squared deviation times the square of the width."""
        return (self.width * (self.width * 4**15 + (1 << 32) - 1)).bit_length()

    @property
    def centred_shape(self) -> Shape:
        """An element times the width, minus its row's sum."""
        return signed(self.sum_shape.width + 1)

    @property
    def affine_layout(self) -> data.StructLayout:
        """A slice of weights and biases."""
        biases = data.ArrayLayout(OUTPUT.shape, self.lanes)
        return data.StructLayout({"weights": self.weights_layout, "biases": biases})

    @property
    def row_layout(self) -> data.StructLayout:
        """A row's sum, and its reciprocal deviation as a mantissa and a shift."""
        mantissa = (max(self.root_breakpoints) >> GUARD_BITS).bit_length()
        return data.StructLayout(
            {
                "sum": self.sum_shape,
                "mantissa": unsigned(mantissa),
                "shift": range(self.spread_width // 2 + 1),
            }
        )


class LayerNorm(Unit):
    """Hidden states minus their mean, divided by their deviation, times weights, plus biases.

    Element i of a row of N becomes ``(x[i] - mean(x)) / sqrt(var(x) + epsilon) * w[i] + b[i]``. One
    pass computes ``S = sum(x)`` and ``Q = sum(x**2)``. Scaled by N, mean and variance need no
    division: ``(N x[i] - S) / sqrt(N Q - S**2 + N**2 epsilon)``. The scale of a row cancels, so
    every row may have its own scale and use all 16 bits; only epsilon depends on it.

    **Latency** 13 cycles from a row's last slice to its first result, 14 if `registered`.
    **Throughput** one slice in and one slice out per cycle, also across rows. While `rows` complete
    rows are in flight, the next row waits: `rows` rows of n slices take at least ``2 n + 7``
    cycles. A slice waits for its weights.

    **Numerics** sums, squared deviation and centred elements are exact. The squared deviation is
    normalised to 15 fraction bits (floor). Its reciprocal root is interpolated in a table of 256
    breakpoints over two octaves and rounded to 16 fraction bits. The product with the centred
    element is floored to a ratio of 16 - log2(sqrt(width)) fraction bits; the dropped part counts
    as half a unit. The product with the weight is rounded half up to Q6.10, the bias is added, and
    the sum saturates. The error relative to the exact result y is at most ``0.5 * 2**-10 + abs(w) *
    2**-(ratio_fraction + 1) + 4e-5 * abs(y - b)``, unless y saturates.

    Parameters
    ----------
    parameters : LayerNormParameters
        Row width, number of lanes and formats.

    Members
    -------
    states : In(stream)
        The `values` of a row of exactly `width` elements; `epsilon` in the row's first slice: width
        times the norm's epsilon in squared steps of x; `last` in its last slice.
    affine : In(stream)
        For each slice of states a slice of `weights`, 16 bits with `weight_fraction` fraction bits,
        and of `biases` in Q6.10.
    results : Out(stream)
        `values` in Q6.10, `last`.

    Raises
    ------
    ValueError
        If `LayerNormParameters` rejects a value.
    """

    def __init__(self, *, parameters: LayerNormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "states": In(stream.Signature(parameters.slice_layout)),
                "affine": In(stream.Signature(parameters.affine_layout)),
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
            depth=p.slices + TURNAROUND,
            rows=p.rows,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute the sums, the squared deviation and its reciprocal root, without stalls."""
        p = self.parameters
        states = self.states.payload
        take = take_slices(m, buffer, self.states)
        # First stage: flags are delayed in parallel with the squares and the elements.
        begins = Signal(init=1)
        with m.If(take):
            m.d.sync += begins.eq(states.last)
        # The two registers match those between a slice and its sums.
        strobe = delay_line(m, take, 2, name="strobe", reset=True)[-1]
        flags = delay_line(m, Cat(begins, states.last), 2, name="flags")[-1]
        epsilon = delay_line(m, states.epsilon, 2, name="epsilon")[-1]

        squares = [Signal(SQUARE_BITS, name=f"square_{i}", reset_less=True) for i in range(p.lanes)]
        elements = [Signal(STATE, name=f"element_{i}", reset_less=True) for i in range(p.lanes)]
        m.d.sync += [
            squares[i].eq(squared(m, f"squared_{i}", states.values[i])) for i in range(p.lanes)
        ]
        m.d.sync += [elements[i].eq(states.values[i]) for i in range(p.lanes)]
        square_sum = Signal(p.squares_width, reset_less=True)
        element_sum = Signal(p.sum_shape, reset_less=True)
        begin, last = flags
        row_sum(m, squares, strobe=strobe, begins=begin, start=epsilon, total=square_sum)
        row_sum(m, elements, strobe=strobe, begins=begin, start=0, total=element_sum)
        spread = self._spread(m, square_sum, element_sum)

        mantissa, shift = reciprocal_root(m, spread, p.root_breakpoints)
        stages = SPREAD_STAGES + ROOT_STAGES
        ended = delay_line(m, strobe & last, 1 + stages, name="ended", reset=True)[-1]
        row = buffer.results.payload
        m.d.comb += [
            buffer.results.valid.eq(ended),
            row.mantissa.eq(mantissa),
            row.shift.eq(shift),
            row.sum.eq(delay_line(m, element_sum, stages, name="sum")[-1]),
        ]

    def _spread(self, m: Module, square_sum: Signal, element_sum: Signal) -> Signal:
        """Return ``N Q - S**2``, with the square of S computed by halves."""
        p = self.parameters
        half = len(element_sum) // 2
        low, high = element_sum[:half], element_sum[half:].as_signed()
        scaled = Signal(p.spread_width, reset_less=True)
        products = [
            multiply_add(m, f"spread_{name}", element_sum, part)
            for name, part in (("low", low), ("high", high))
        ]
        held = [Signal.like(one, name="product_held", reset_less=True) for one in products]
        difference = CarrySaveSum(m, p.spread_width)
        difference.add(scaled)
        difference.subtract(held[0])
        difference.subtract(held[1].shift_left(half))
        spread = Signal(p.spread_width, reset_less=True)
        m.d.sync += [
            scaled.eq(square_sum * p.width),
            *[register.eq(one) for register, one in zip(held, products, strict=True)],
            spread.eq(difference.result()),
        ]
        return spread

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Centre, multiply by the reciprocal deviation, then by the weights, which may be late."""
        p = self.parameters
        row = Signal(p.row_layout, reset_less=True)
        # The last stage may load while the other stages wait for weights.
        free = ~self.results.valid | self.results.ready
        move = Signal()
        extra = int(p.registered)
        stages = delay_line(m, buffer.valid, 3 + extra, name="valid", enable=move, reset=True)
        lasts = delay_line(m, buffer.last, 3 + extra, name="last", enable=move)
        factors = delay_line(m, Cat(row.mantissa, row.shift), 1, name="factors", enable=move)[-1]
        mantissa, shift = factors[: len(row.mantissa)], factors[len(row.mantissa) :]
        shift = delay_line(m, shift, extra, name="held_shift", enable=move)[-1]
        divided = stages[-1]
        m.d.comb += [
            move.eq(free & (~divided | self.affine.valid)),
            buffer.enable.eq(move),
            self.affine.ready.eq(free & divided),
        ]
        out = self.results.payload
        with m.If(move):
            m.d.sync += row.eq(buffer.result)
        weighed, cycles = divided & self.affine.valid, int(p.weighed)
        weighed = delay_line(m, weighed, cycles, name="weighed", enable=free, reset=True)[-1]
        weighed_last = delay_line(m, lasts[-1], cycles, name="weighed_last", enable=free)[-1]
        with m.If(free):
            m.d.sync += [self.results.valid.eq(weighed), out.last.eq(weighed_last)]
        affine = self.affine.payload
        for i in range(p.lanes):
            centred = Signal(p.centred_shape, name=f"centred_{i}", reset_less=True)
            ratio = Signal(RATIO, name=f"ratio_{i}", reset_less=True)
            scaled = multiply_add(m, f"scale_{i}", centred, mantissa)
            scaled = delay_line(m, scaled, extra, name=f"product_{i}", enable=move)[-1]
            weight, bias = affine.weights[i], affine.biases[i]
            result = weighted(m, f"weight_{i}", ratio, weight, p, enable=free, bias=bias)
            with m.If(move):
                m.d.sync += [
                    centred.eq(buffer.data[i] * p.width - row.sum),
                    ratio.eq(scaled >> p.width_exponent >> shift),
                ]
            with m.If(free):
                m.d.sync += out.values[i].eq(result)
