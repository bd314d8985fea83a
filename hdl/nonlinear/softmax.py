"""Softmax with an online maximum, in base 2 and fixed point.

A row of scores arrives in slices of `lanes` scores. The first pass converts each slice to powers of
two relative to the largest score so far, rounded up to an integer. A later, larger maximum then
corrects the earlier slices by a shift. When the row is complete, the second pass scales its slices
by the reciprocal of their sum.
"""

from functools import partial
from typing import Annotated

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum, column_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.multiply_add import divided_product, multiply_add
from hdl.arith.reciprocal import MANTISSA_BITS, Reciprocal
from hdl.memory.row_buffer import RowBuffer
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require
from hdl.unit import Unit

SCORE = FixedPoint(integer_bits=6, fraction_bits=10)
"""A score, already multiplied by log2(e)."""

PROBABILITY = FixedPoint(integer_bits=0, fraction_bits=16, signed=False)
"""A probability at the output."""

POWER_FRACTION = 15
"""Fraction bits of a power 2**(score - maximum), which is at most 1, and of the sum."""

FACTOR_FRACTION = 18
"""Fraction bits of the factor of a slice."""

SLOPES = (24, 29, 34, 41)
"""Slopes of 2**f in the four quarters of [0, 1), in units of 1/32.

Their sum is 128/32, so the segments are continuous, and every point is exact with 15 fraction bits.
"""

STARTS = tuple(256 * sum(SLOPES[:quarter]) for quarter in range(4))
"""2**f - 1 at the start of each quarter, in units of 2**-15."""

TURNAROUND = 8
"""Cycles from a row's last slice to the first buffer entry that the row frees."""

MAXIMUM = signed(7)
"""A maximum rounded up: -32 to 32."""

SHIFT_BITS = 7
"""Bits of the shift of a slice's factor: up to 64 binades of maxima, and 13 of the sum."""


@parameter_object
class SoftmaxParameters(Parameters):
    """Dimensions of a softmax unit, shared with its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Scores per slice.
    scores : int
        Maximum number of scores in a row, a multiple of `lanes` and at least two slices.
    rows : int
        Maximum number of complete rows, in flight or stored.
    divided : bool
        Whether registers divide the product of a power and its factor in the middle, the factor
        and each power before their shifts, and the maximum of a slice after the first comparison.
        They add 4 cycles of latency, and change no value.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "scores")] = 32
    scores: Annotated[int, Range(2, 4096, "scores")] = 2048
    rows: Annotated[int, Range(1, 16, "rows")] = 4
    divided: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.scores % self.lanes == 0, "scores must be a multiple of lanes", self.scores)
        require(self.scores >= 2 * self.lanes, "scores must be at least two slices", self.scores)

    @property
    def sum_width(self) -> int:
        """Bits of the sum of powers; all powers may be 1."""
        return (self.scores << POWER_FRACTION).bit_length()

    @property
    def depth(self) -> int:
        """Slices in the buffer: the longest row, plus those taken while its sum is inverted."""
        return self.scores // self.lanes + TURNAROUND + 2 * int(self.divided)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of scores; a lane whose `keep` is 0 is ignored."""
        values = data.ArrayLayout(SCORE.shape, self.lanes)
        return data.StructLayout({"values": values, "keep": self.lanes, "last": 1})

    @property
    def powers_layout(self) -> data.ArrayLayout:
        """The powers of a slice, as the buffer holds them."""
        return data.ArrayLayout(unsigned(POWER_FRACTION + 1), self.lanes)

    @property
    def row_layout(self) -> data.StructLayout:
        """The result of a row: the reciprocal of its sum, relative to its maximum."""
        return data.StructLayout({"mantissa": MANTISSA_BITS, "shift": SHIFT_BITS})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of probabilities."""
        values = data.ArrayLayout(PROBABILITY.shape, self.lanes)
        return data.StructLayout({"values": values, "last": 1})


def ceiling(score: Value) -> Value:
    """Round a score up to an integer."""
    fraction = score[: SCORE.fraction_bits]
    return (score[SCORE.fraction_bits :].as_signed() + fraction.any())[: MAXIMUM.width].as_signed()


def largest(values: list[Value]) -> Value:
    """Return the maximum of values by a balanced tree."""
    while len(values) > 1:
        paired = zip(values[::2], values[1::2], strict=True)
        values = [Mux(a > b, a, b) for a, b in paired]
    return values[0]


def power_of_fraction(m: Module, score: Value) -> Value:
    """Return 2**f of the fraction f of a score, with 15 fraction bits, exact."""
    quarter, offset = score[8:10], score[:8]
    start = Array(Const(value, POWER_FRACTION) for value in STARTS)[quarter]
    slope = Array(Const(value, 6) for value in SLOPES)[quarter]
    rise = CarrySaveSum(m, POWER_FRACTION)
    rise.add_product(offset, slope)
    rise.add(start)
    return Cat(rise.result(), Const(1, 1))


def binades_below(score: Value, maximum: Value) -> Value:
    """Return the maximum minus the integer part of a score."""
    # The difference is not negative, so its low bits are sufficient.
    return (maximum - score[SCORE.fraction_bits :].as_signed())[: MAXIMUM.width]


def power(mantissa: Value, distance: Value) -> Value:
    """Return 2**(score - maximum) with 15 fraction bits, floor; the exponent is at most 0."""
    return Mux(distance[4:].any(), 0, mantissa >> distance[:4])


class Softmax(Unit):
    """Probabilities 2**s / sum(2**s) of rows of scores s, in slices of `lanes`.

    **Latency** 10 cycles from a row's last slice to its first slice of probabilities, 14 if
    `divided`.

    **Throughput** one slice in and one slice out per cycle, also across rows. While `rows` complete
    rows are in flight, the next row waits: `rows` rows of n slices take at least ``2 n + 6``
    cycles, which with 4 rows limits rows of fewer than 3 slices.

    **Numerics** m is the ceiling of the largest score so far. p = 2**(s - m) in UQ1.15 is computed
    with four linear segments on the fraction and a shift (floor). The sum is d = (d >> (m -
    previous m)) + sum(p); its reciprocal has a mantissa of 15 bits. It is scaled by each slice's
    2**(m - last m), rounded half up to 18 fraction bits, multiplied by p and rounded half up to
    UQ0.16. For a row of n scores the error relative to the exact softmax q is at most ``0.005 * q +
    (q * (n + 2) + 1.25) * 2**-14``: the error of the segments and the truncation of p.

    Parameters
    ----------
    parameters : SoftmaxParameters
        Row length, number of lanes and number of rows.

    Members
    -------
    scores : In(stream)
        `values` in Q6.10, `keep` with one bit per lane, `last` in a row's last slice. A row has at
        most `parameters.scores` scores and keeps at least one of them.
    probabilities : Out(stream)
        `values` in UQ0.16, 0 in lanes that are not kept; `last`.

    Raises
    ------
    ValueError
        If `SoftmaxParameters` rejects a value.
    """

    def __init__(self, *, parameters: SoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.slice_layout)),
                "probabilities": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the first pass, the buffer and the second pass."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.powers_layout,
            tag_shape=MAXIMUM,
            result_shape=p.row_layout,
            depth=p.depth,
            rows=p.rows,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute powers, their sum, and its reciprocal; this pass never stalls."""
        p = self.parameters
        taken = self.scores.payload
        take = self.scores.valid & buffer.room
        m.d.comb += [
            self.scores.ready.eq(buffer.room),
            buffer.take.eq(take),
            buffer.take_last.eq(taken.last),
        ]

        # A lane that is not kept contributes the smallest possible maximum.
        bottom = Const(-32, MAXIMUM)
        peak = Signal(MAXIMUM, reset_less=True)
        scores = Signal(p.slice_layout, reset_less=True)
        strobe = Signal()
        lanes = range(p.lanes)
        ceilings = [Mux(taken.keep[i], ceiling(taken.values[i]), bottom) for i in lanes]
        # If `divided`, registers hold the larger one of two adjacent lanes.
        late = partial(delay_line, m, cycles=int(p.divided))
        peaks = (largest(ceilings[i : i + 2]) for i in lanes[::2])
        peaks = [late(one, name=f"peak_{i}")[-1] for i, one in enumerate(peaks)]
        m.d.sync += [
            strobe.eq(late(take, name="accepted", reset=True)[-1]),
            scores.eq(late(taken, name="slice")[-1]),
            peak.eq(largest(peaks)),
        ]

        # Second stage: the running maximum, and each score as a power relative to it.
        begins = Signal(init=1)
        running = Signal(MAXIMUM, reset_less=True)
        maximum = Signal(MAXIMUM)
        m.d.comb += maximum.eq(Mux(begins | (peak > running), peak, running))
        with m.If(strobe):
            m.d.sync += [begins.eq(scores.last), running.eq(maximum)]

        powers = Signal(p.powers_layout, reset_less=True)
        # The increase of the maximum is the number of binades by which the previous sum is shifted.
        growth = Signal(MAXIMUM.width, reset_less=True)
        first, last, written = Signal(reset_less=True), Signal(reset_less=True), Signal()
        # If `divided`, registers hold each power before its shift, and the slice's other values.
        keep = late(scores.keep, name="keep")[-1]
        for i in lanes:
            mantissa = late(power_of_fraction(m, scores.values[i]), name=f"mantissa_{i}")[-1]
            distance = late(binades_below(scores.values[i], maximum), name=f"distance_{i}")[-1]
            m.d.sync += powers[i].eq(Mux(keep[i], power(mantissa, distance), 0))
        m.d.sync += [
            growth.eq(late((maximum - running)[: MAXIMUM.width], name="rise")[-1]),
            first.eq(late(begins, name="begins")[-1]),
            last.eq(late(scores.last, name="taken_last")[-1]),
            written.eq(late(strobe, name="taken", reset=True)[-1]),
        ]
        tag = late(running, name="running")[-1]
        m.d.comb += [
            buffer.write.strobe.eq(written),
            buffer.write.last.eq(last),
            buffer.write.tag.eq(tag),
            buffer.write.data.eq(powers),
        ]

        # The sum runs in parallel with the buffer; the first pass never stalls, so it needs no
        # handshake.
        m.submodules.denominator = denominator = Denominator(parameters=p)
        m.d.comb += [
            denominator.strobe.eq(written),
            denominator.first.eq(first),
            denominator.last.eq(last),
            denominator.growth.eq(growth),
            denominator.maximum.eq(tag),
            denominator.powers.eq(powers),
            buffer.results.valid.eq(denominator.valid),
            buffer.results.payload.eq(denominator.row),
        ]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Scale each slice by one factor; all stages stall together."""
        p = self.parameters
        move = ~self.probabilities.valid | self.probabilities.ready
        m.d.comb += buffer.enable.eq(move)

        # A slice was written relative to the maximum at that time: correct it by the row's maximum.
        shift = (buffer.result.shift - buffer.tag)[:SHIFT_BITS]
        mantissa, powers = buffer.result.mantissa, buffer.data
        # A register before the shift of the mantissa; the data, which are read later, wait as well.
        extra = int(p.divided)
        shift = delay_line(m, shift, extra, name="shift", enable=move)[-1]
        mantissa = delay_line(m, mantissa, extra, name="mantissa", enable=move)[-1]
        powers = delay_line(m, powers, extra, name="data", enable=move)[-1]
        valid = delay_line(m, buffer.valid, extra, name="valid", enable=move, reset=True)[-1]
        last = delay_line(m, buffer.last, extra, name="last", enable=move)[-1]
        wide = Cat(Const(0, FACTOR_FRACTION + 2 - MANTISSA_BITS), mantissa)
        # A shift by 32 or more gives zero, so the shifter has only 5 bits.
        shifted = Mux(shift[5:].any(), 0, wide >> shift[:5])
        factor = Signal(FACTOR_FRACTION + 1, reset_less=True)
        scaled, scaled_last = Signal(), Signal(reset_less=True)
        out = self.probabilities.payload
        drop = POWER_FRACTION + FACTOR_FRACTION - PROBABILITY.fraction_bits
        product = partial(divided_product, enable=move) if p.divided else multiply_add
        products = [
            product(m, f"scale_{i}", powers[i], factor, constant=1 << drop - 1)
            for i in range(p.lanes)
        ]
        done = delay_line(m, scaled, extra, name="scaled", enable=move, reset=True)[-1]
        done_last = delay_line(m, scaled_last, extra, name="scaled_last", enable=move)[-1]
        with m.If(move):
            m.d.sync += [
                # Round to nearest: the lowest bit is the half.
                factor.eq((shifted + 1) >> 1),
                scaled.eq(valid),
                scaled_last.eq(last),
                self.probabilities.valid.eq(done),
                out.last.eq(done_last),
            ]
            m.d.sync += [out.values[i].eq(products[i] >> drop) for i in range(p.lanes)]


class Denominator(Unit):
    """The sum of a row's powers, relative to the running maximum, and its reciprocal.

    **Latency** 5 cycles from the last slice to `valid`. **Throughput** one slice per cycle.

    **Numerics** as in `Softmax`.

    Parameters
    ----------
    parameters : SoftmaxParameters
        Row length and number of lanes.

    Members
    -------
    strobe, first, last : In(1)
        A slice is valid; it is the first or the last of its row.
    growth : In(7)
        Increase of the maximum by this slice; undefined in a row's first slice.
    maximum : In
        The maximum up to this slice.
    powers : In
        The powers of the slice.
    valid, row : Out
        The row's result for the second pass, for one cycle.

    Raises
    ------
    ValueError
        If `SoftmaxParameters` rejects a value.
    """

    def __init__(self, *, parameters: SoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "strobe": In(1),
                "first": In(1),
                "last": In(1),
                "growth": In(MAXIMUM.width),
                "maximum": In(MAXIMUM),
                "powers": In(parameters.powers_layout),
                "valid": Out(1),
                "row": Out(parameters.row_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Add the values of a slice, add the result to the row's sum, invert the sum."""
        m = Module()
        p = self.parameters
        # First stage: the sum of one slice.
        slice_sum = column_sum(m, [self.powers[i] for i in range(p.lanes)])
        addend = Signal(slice_sum.shape(), reset_less=True)
        growth = Signal.like(self.growth, reset_less=True)
        first, last, strobe = Signal(reset_less=True), Signal(reset_less=True), Signal()
        m.d.sync += [
            addend.eq(slice_sum),
            growth.eq(self.growth),
            first.eq(self.first),
            last.eq(self.last),
            strobe.eq(self.strobe),
        ]
        total = Signal(p.sum_width, reset_less=True)
        # Second stage: align the row's sum to the new maximum, then add the slice.
        kept = Mux(first | growth[5:].any(), 0, total >> growth[:5])
        with m.If(strobe):
            m.d.sync += total.eq(kept + addend)

        m.submodules.reciprocal = reciprocal = Reciprocal(width=p.sum_width, stages=3)
        m.d.comb += [
            reciprocal.a.eq(total),
            self.row.mantissa.eq(reciprocal.mantissa),
        ]
        # The delay covers addend, sum, and three stages of the reciprocal.
        maximum = delay_line(m, self.maximum, 5, name="maximum")[-1]
        valid = delay_line(m, self.strobe & self.last, 5, name="ended", reset=True)[-1]
        m.d.comb += [
            # The sum is at least 1/2: its highest one is at 2**-1 or above.
            self.row.shift.eq(maximum + reciprocal.exponent - (POWER_FRACTION - 1)),
            self.valid.eq(valid),
        ]
        return m
