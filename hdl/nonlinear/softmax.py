"""Softmax with the maximum found online, in base 2 and in fixed point.

A row of scores comes in slices of `lanes`. Each slice is turned into powers of two relative to the
largest score so far, rounded up to an integer, so that a later and larger maximum corrects the
earlier ones by a shift. When the row is complete its slices are scaled by the reciprocal of their
sum.
"""

from typing import Annotated, Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum, column_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.multiply_add import multiply_add
from hdl.arith.reciprocal import MANTISSA_BITS, Reciprocal
from hdl.memory.row_buffer import RowBuffer
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit

SCORE = FixedPoint(integer_bits=6, fraction_bits=10)
"""A score, already multiplied by log2(e)."""

PROBABILITY = FixedPoint(integer_bits=0, fraction_bits=16, signed=False)
"""An output."""

POWER_FRACTION = 15
"""Fraction bits of a power 2**(score - maximum), which is at most 1, and of the sum."""

FACTOR_FRACTION = 18
"""Fraction bits of what a slice is multiplied by."""

SLOPES = (24, 29, 34, 41)
"""Slopes of 2**f in the four quarters of 0 to 1, in 32nds. They add up to 4, so the four pieces
join, and every point of them is exact with 15 fraction bits."""

STARTS = tuple(256 * sum(SLOPES[:quarter]) for quarter in range(4))
"""2**f - 1 where each quarter begins, in units of 2**-15."""

TURNAROUND = 8
"""Cycles from a row's last slice to the first place in the buffer that it sets free."""

MAXIMUM = signed(7)
"""A rounded-up maximum: -32 to 32."""

SHIFT_BITS = 7
"""Bits of how far a slice's factor is shifted: by 64 binades of maxima, and 13 of the sum."""


@parameter_object
class SoftmaxParameters(Parameters):
    """Dimensions of a softmax unit; they also drive its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Scores in a slice.
    scores : int
        Scores of a row at most, a multiple of `lanes` and at least two slices.
    rows : int
        Complete rows under way or waiting at most.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "scores")] = 32
    scores: Annotated[int, Range(2, 4096, "scores")] = 2048
    rows: Annotated[int, Range(1, 16, "rows")] = 4

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.scores % self.lanes == 0, "scores must be a multiple of lanes", self.scores)
        require(self.scores >= 2 * self.lanes, "scores must be at least two slices", self.scores)

    @property
    def sum_width(self) -> int:
        """Bits of the sum of powers: all of them may be 1."""
        return (self.scores << POWER_FRACTION).bit_length()

    @property
    def depth(self) -> int:
        """Slices in the buffer: the longest row, and the next one's while its sum is inverted."""
        return self.scores // self.lanes + TURNAROUND

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of scores; a lane whose `keep` is 0 takes no part."""
        values = data.ArrayLayout(SCORE.shape, self.lanes)
        return data.StructLayout({"values": values, "keep": self.lanes, "last": 1})

    @property
    def powers_layout(self) -> data.ArrayLayout:
        """The powers of a slice, as the buffer holds them."""
        return data.ArrayLayout(unsigned(POWER_FRACTION + 1), self.lanes)

    @property
    def row_layout(self) -> data.StructLayout:
        """What depends on a whole row: the sum's reciprocal, relative to the row's maximum."""
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
    """Return the largest of some values by a balanced tree."""
    while len(values) > 1:
        paired = zip(values[::2], values[1::2], strict=True)
        values = [Mux(a > b, a, b) for a, b in paired]
    return values[0]


def power(m: Module, score: Value, maximum: Value) -> Value:
    """Return 2**(score - maximum) with 15 fraction bits, floor; at most 1 by its meaning."""
    quarter, offset = score[8:10], score[:8]
    start = Array(Const(value, POWER_FRACTION) for value in STARTS)[quarter]
    slope = Array(Const(value, 6) for value in SLOPES)[quarter]
    rise = CarrySaveSum(m, POWER_FRACTION)
    rise.add_product(offset, slope)
    rise.add(start)
    mantissa = Cat(rise.result(), Const(1, 1))
    # The difference is not negative, so its low bits are all there is.
    distance = (maximum - score[SCORE.fraction_bits :].as_signed())[: MAXIMUM.width]
    return Mux(distance[4:].any(), 0, mantissa >> distance[:4])


class Softmax(Unit):
    """Probabilities 2**s / sum(2**s) of rows of scores s, which come in slices of `lanes`.

    **Latency** 10 cycles from a row's last slice to its first slice of probabilities.

    **Throughput** one slice in and one out a cycle, also from row to row; but while `rows` complete
    rows are under way the next waits: `rows` rows of n slices take ``2 n + 6`` cycles at least,
    which with 4 of them rows shorter than 3 slices notice.

    **Numerics** m is the ceiling of the largest score so far; p = 2**(s - m) in UQ1.15 by four
    linear pieces on the fraction and a shift (floor); the sum d = (d >> (m - previous m)) + sum(p);
    its reciprocal has a mantissa of 15 bits; it is scaled by each slice's 2**(m - last m), rounded
    half up to 18 fraction bits, multiplied by p and rounded half up to UQ0.16. For a row of n
    scores the error to the exact softmax q is at most
    ``0.005 * q + (q * (n + 2) + 1.25) * 2**-14``: the pieces' error, and what floor takes from p.

    Parameters
    ----------
    parameters : SoftmaxParameters
        Dimensions.

    Members
    -------
    scores : In(stream)
        `values` in Q6.10, `keep` a bit a lane, `last` in a row's last slice. A row has at most
        `parameters.scores` scores and keeps at least one of them.
    probabilities : Out(stream)
        `values` in UQ0.16, 0 in lanes that were not kept; `last`.

    Raises
    ------
    ValueError
        By `SoftmaxParameters`.
    """

    def __init__(self, *, parameters: SoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.slice_layout)),
                "probabilities": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
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
        """Powers, their sum, and its reciprocal; nothing here ever waits."""
        p = self.parameters
        taken = self.scores.payload
        take = self.scores.valid & buffer.room
        m.d.comb += [
            self.scores.ready.eq(buffer.room),
            buffer.take.eq(take),
            buffer.take_last.eq(taken.last),
        ]

        # A lane that is not kept counts as the smallest maximum there can be.
        bottom = Const(-32, MAXIMUM)
        peak = Signal(MAXIMUM, reset_less=True)
        scores = Signal(p.slice_layout, reset_less=True)
        strobe = Signal()
        lanes = range(p.lanes)
        ceilings = [Mux(taken.keep[i], ceiling(taken.values[i]), bottom) for i in lanes]
        m.d.sync += [strobe.eq(take), scores.eq(taken), peak.eq(largest(ceilings))]

        # Second stage: the maximum so far, and each score as a power relative to it.
        begins = Signal(init=1)
        running = Signal(MAXIMUM, reset_less=True)
        maximum = Signal(MAXIMUM)
        m.d.comb += maximum.eq(Mux(begins | (peak > running), peak, running))
        with m.If(strobe):
            m.d.sync += [begins.eq(scores.last), running.eq(maximum)]

        powers = Signal(p.powers_layout, reset_less=True)
        # By how much the maximum grew: what was summed before shrinks by as many binades.
        growth = Signal(MAXIMUM.width, reset_less=True)
        first, last, written = Signal(reset_less=True), Signal(reset_less=True), Signal()
        for i in lanes:
            m.d.sync += powers[i].eq(Mux(scores.keep[i], power(m, scores.values[i], maximum), 0))
        m.d.sync += [
            growth.eq(maximum - running),
            first.eq(begins),
            last.eq(scores.last),
            written.eq(strobe),
        ]
        m.d.comb += [
            buffer.write.strobe.eq(written),
            buffer.write.last.eq(last),
            buffer.write.tag.eq(running),
            buffer.write.data.eq(powers),
        ]

        # The sum runs beside the buffer; nothing before it waits, so no handshake is needed.
        m.submodules.denominator = denominator = Denominator(parameters=p)
        m.d.comb += [
            denominator.strobe.eq(written),
            denominator.first.eq(first),
            denominator.last.eq(last),
            denominator.growth.eq(growth),
            denominator.maximum.eq(running),
            denominator.powers.eq(powers),
            buffer.results.valid.eq(denominator.valid),
            buffer.results.payload.eq(denominator.row),
        ]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Scale each slice by one factor; all of this waits together."""
        p = self.parameters
        move = ~self.probabilities.valid | self.probabilities.ready
        m.d.comb += buffer.enable.eq(move)

        # Slices were written relative to the maximum of their time: the row's own corrects them.
        shift = (buffer.result.shift - buffer.tag)[:SHIFT_BITS]
        wide = Cat(Const(0, FACTOR_FRACTION + 2 - MANTISSA_BITS), buffer.result.mantissa)
        # A shift by 32 or more leaves nothing; the shifter need not know it.
        shifted = Mux(shift[5:].any(), 0, wide >> shift[:5])
        factor = Signal(FACTOR_FRACTION + 1, reset_less=True)
        scaled, scaled_last = Signal(), Signal(reset_less=True)
        out = self.probabilities.payload
        drop = POWER_FRACTION + FACTOR_FRACTION - PROBABILITY.fraction_bits
        products = [
            multiply_add(m, f"scale_{i}", buffer.data[i], factor, constant=1 << drop - 1)
            for i in range(p.lanes)
        ]
        with m.If(move):
            m.d.sync += [
                # Rounded to nearest: the lowest bit counts as half.
                factor.eq((shifted + 1) >> 1),
                scaled.eq(buffer.valid),
                scaled_last.eq(buffer.last),
                self.probabilities.valid.eq(scaled),
                out.last.eq(scaled_last),
            ]
            m.d.sync += [out.values[i].eq(products[i] >> drop) for i in range(p.lanes)]


class Denominator(Unit):
    """The sum of a row's powers, kept relative to the largest score so far, and its reciprocal.

    **Latency** 5 cycles from the last slice to `valid`. **Throughput** one slice a cycle.

    **Numerics** as in `Softmax`.

    Parameters
    ----------
    parameters : SoftmaxParameters
        Dimensions.

    Members
    -------
    strobe, first, last : In(1)
        A slice is there; it begins or ends its row.
    growth : In(7)
        Increase of the maximum by this slice; no meaning in a row's first.
    maximum : In
        The maximum up to this slice.
    powers : In
        Its powers.
    valid, row : Out
        What the second pass needs to know of the row, for one cycle.

    Raises
    ------
    ValueError
        By `SoftmaxParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Add up a slice, add it to the row, invert the sum."""
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
        # Second stage: the row's sum, brought to the new maximum before the slice is added.
        kept = Mux(first | growth[5:].any(), 0, total >> growth[:5])
        with m.If(strobe):
            m.d.sync += total.eq(kept + addend)

        m.submodules.reciprocal = reciprocal = Reciprocal(width=p.sum_width, stages=3)
        m.d.comb += [
            reciprocal.a.eq(total),
            self.row.mantissa.eq(reciprocal.mantissa),
        ]
        # Addend, sum, and the reciprocal's three.
        maximum = delay_line(m, self.maximum, 5, name="maximum")[-1]
        valid = delay_line(m, self.strobe & self.last, 5, name="ended", reset=True)[-1]
        m.d.comb += [
            # The sum is at least 1/2: its highest one is at 2**-1 or above.
            self.row.shift.eq(maximum + reciprocal.exponent - (POWER_FRACTION - 1)),
            self.valid.eq(valid),
        ]
        return m
