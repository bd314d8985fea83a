"""The 4-way dot product of a PE and its accumulators (Figure 6 c), after the operand decoders."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.compressor import full_adders
from hdl.arith.prefix_sum import prefix_sum
from hdl.p3llm.pim.operand_decoder import SHIFT, SIGNIFICAND, WEIGHT
from hdl.parameters import require_range
from hdl.target import Target, current_target
from hdl.unit import Unit

PE_LANES = 4
"""Products that an element adds per cycle."""

PRODUCT = signed(10)
"""Shape of a product; its magnitude is at most 31 * 15."""

SHIFTED_BITS = 24
"""Bits of a product shifted by 14."""

PAIR_BITS = SHIFTED_BITS + 2
"""Bits of the two words to which four shifted products are compressed."""

SUM = signed(32)
"""Shape of an accumulator: the paper's 32-bit fixed point."""


class CarrySave(NamedTuple):
    """A sum as two words, which a row of full adders outputs."""

    sums: Value
    carries: Value


def named(m: Module, value: Value, name: str) -> Signal:
    """Return the value as a named signal: an expression used twice would be emitted twice."""
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def shifted(m: Module, product: Value, shift: Value) -> Value:
    """Return a product shifted left; small shifts first, so that only later ones are wide."""
    value = product
    for place in range(len(shift)):
        step = 1 << place
        far = Cat(Const(0, step), value)
        near = Cat(value, value[-1].replicate(step))
        value = named(m, Mux(shift[place], far, near), f"shifted_{place}")
    return value[:SHIFTED_BITS].as_signed()


class DotProduct(Unit):
    """Four multipliers, shifters, a 4:2 compressor and the 32-bit accumulators of a PE.

    The products of four inputs and four weights are shifted by the inputs' exponents and added to a
    sum. An element has ``2 * pumps`` accumulators. `pumps` of them hold running sums, one for each
    input that shares a column. They form a ring that rotates in every cycle, so that one adder
    serves all inputs without a multiplexer. A complete sum moves to a shift register of `pumps`
    finished sums, which are read while the next sums accumulate.

    **Latency** 3 cycles from operands to a finished sum. **Throughput** four multiply-adds per
    cycle. **Numerics** exact integers modulo ``2**32``; a sum does not overflow while the
    magnitudes of its inputs, ``abs(significand) << shift``, add up to less than ``2**27``.

    Parameters
    ----------
    pumps : int
        Inputs that share a column, one per cycle, 1 to 8.

    Members
    -------
    significands : In(ArrayLayout)
        Decoded inputs; 0 in an idle cycle.
    weights : In(ArrayLayout)
        Decoded weights, keys or values.
    shifts : In(ArrayLayout)
        Shifts of the inputs, one cycle after their significands.
    first, last : In(1)
        The products start or complete a sum; valid one cycle after the shifts, 0 in an idle cycle.
    advance : In(1)
        Shift the finished sums by one, as the first has been read; not in the same cycle as `last`.
    finished : Out(signed(32))
        The first of the finished sums.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, pumps: int = 2) -> None:
        require_range("pumps", pumps, 1, 8)
        shifted_product = signed(SHIFTED_BITS)
        self.words = [Signal(shifted_product, name=f"word_{i}") for i in range(PE_LANES)]
        self.products, self.pair, self.running, self.finished_sums = (
            [Signal(shape, name=f"{name}_{i}", reset_less=True) for i in range(count)]
            for name, shape, count in (
                ("product", PRODUCT, PE_LANES),
                ("pair", PAIR_BITS, 2),
                ("running", SUM, pumps),
                ("finished", SUM, pumps),
            )
        )
        self.total = Signal(SUM)
        super().__init__(
            {
                "significands": In(data.ArrayLayout(SIGNIFICAND, PE_LANES)),
                "weights": In(data.ArrayLayout(WEIGHT, PE_LANES)),
                "shifts": In(data.ArrayLayout(SHIFT, PE_LANES)),
                "first": In(1),
                "last": In(1),
                "advance": In(1),
                "finished": Out(SUM),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply; shift and compress; accumulate: one stage each."""
        m = Module()
        for lane, (product, word) in enumerate(zip(self.products, self.words, strict=True)):
            m.d.sync += product.eq(self.significands[lane] * self.weights[lane])
            m.d.comb += word.eq(shifted(m, product, self.shifts[lane]))
        # Compress four words to two; only the accumulator has a long carry chain.
        x, y = compressed(m, self.words)
        m.d.sync += [self.pair[0].eq(x), self.pair[1].eq(y)]

        before = named(m, Mux(self.first, 0, self.running[-1]), "before")
        m.d.comb += self.total.eq(added(m, self.pair, before))
        # An idle cycle adds zero, so the ring can rotate in every cycle.
        for place, following in pairwise([self.total, *self.running]):
            m.d.sync += following.eq(place)
        # The word that `advance` shifts in is never read.
        with m.If(self.last | self.advance):
            for place, following in pairwise([*self.finished_sums, self.total]):
                m.d.sync += place.eq(following)
        m.d.comb += self.finished.eq(self.finished_sums[0])
        return m


def compressed(m: Module, words: Sequence[Value]) -> CarrySave:
    """Compress four shifted products to two words; their sum is 2**25 too large.

    The sum is modulo ``2**PAIR_BITS``. A sign s at bit t has the weight -s * 2**t, which equals
    (~s) * 2**t - 2**t. With inverted signs the words are unsigned and need no sign extension;
    `added` subtracts the constant of the four words.
    """
    a, b, c, d = (Cat(word[:-1], ~word[-1]) for word in words)
    x, y = rows(m, a, b, c, SHIFTED_BITS + 1)
    return rows(m, x, y, d, PAIR_BITS)


def added(m: Module, pair: Sequence[Value], before: Value) -> Value:
    """Return the sum of both words of `compressed` and a running sum, modulo ``2**32``."""
    x, y = pair
    # `x` has no bit 25: the constant -2**25 is placed there and in the bits above.
    lacking = Cat(x[: PAIR_BITS - 1], Const(-1, len(before) - PAIR_BITS + 1))
    if current_target() is Target.FPGA:
        return (lacking + y) + before
    x, y = rows(m, lacking, y, before, len(before))
    return prefix_sum(m, x, y)[: len(before)]


def rows(m: Module, a: Value, b: Value, c: Value, width: int) -> CarrySave:
    """Return the sums and carries of a row of full adders."""
    total, carry = full_adders(a, b, c, width)
    return CarrySave(named(m, total, "sums"), named(m, carry, "carries"))
