"""The dot product of four and its sums: a processing element behind its decoders (Figure 6 c)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.compressor import full_adders
from hdl.arith.prefix_sum import prefix_sum
from hdl.p3llm.pim.operand_decoder import SHIFT, SIGNIFICAND, WEIGHT
from hdl.parameters import require_range
from hdl.target import Target, current_target
from hdl.unit import Unit

LANES = 4
"""Products that an element adds at a time."""

PRODUCT = signed(10)
"""Shape of a product: at most 31 * 15 in magnitude."""

SHIFTED_BITS = 24
"""Bits of a product shifted by 14."""

PAIR_BITS = SHIFTED_BITS + 2
"""Bits of the two words that four shifted products become."""

SUM = signed(32)
"""Shape of a sum."""


def named(m: Module, value: Value, name: str) -> Signal:
    """Give a value a name: an expression that is used twice would be written twice."""
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def shifted(m: Module, product: Value, shift: Value) -> Value:
    """Return a signed product moved left: small steps first, so that later ones alone are wide."""
    value = product
    for place in range(len(shift)):
        step = 1 << place
        far = Cat(Const(0, step), value)
        near = Cat(value, value[-1].replicate(step))
        value = named(m, Mux(shift[place], far, near), f"shifted_{place}")
    return value[:SHIFTED_BITS].as_signed()


class DotProduct(Unit):
    """Four products, shifted by their inputs' exponents and added to one of the running sums.

    The sums are `2 * pumps` contexts. As many as there are pumps are running, one for each input
    that meets a column; they stand in a ring which turns in every cycle, so that the one adder
    finds the sum of the next input in the next cycle, and no multiplexer chooses among them. A
    complete sum leaves for one of the finished contexts, which wait in a row to be read while the
    next sums run.

    **Latency** 3 cycles from operands to a finished sum. **Throughput** four multiply-adds a cycle.
    **Numerics** exact integers modulo ``2**32``; the sum is true while the magnitudes of its
    inputs, ``abs(significand) << shift``, add up to less than ``2**27``.

    Parameters
    ----------
    pumps : int
        Inputs that meet a column, one a cycle, 1 to 4.

    Members
    -------
    significands : In(ArrayLayout)
        Decoded inputs; 0 where there is no work.
    weights : In(ArrayLayout)
        Decoded weights, keys or values.
    shifts : In(ArrayLayout)
        Of the inputs, a cycle after their significands.
    first, last : In(1)
        A cycle after the shifts: the products begin a sum; they complete it. A cycle without work
        has neither.
    advance : In(1)
        Every finished sum takes the place of the one before, which has been read. Not with `last`.
    finished : Out(signed(32))
        The first of the finished sums.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, pumps: int = 2) -> None:
        require_range("pumps", pumps, 1, 4)
        shifted_product = signed(SHIFTED_BITS)
        self.words = [Signal(shifted_product, name=f"word_{i}") for i in range(LANES)]
        self.products, self.pair, self.running, self.finished_sums = (
            [Signal(shape, name=f"{name}_{i}", reset_less=True) for i in range(count)]
            for name, shape, count in (
                ("product", PRODUCT, LANES),
                ("pair", PAIR_BITS, 2),
                ("running", SUM, pumps),
                ("finished", SUM, pumps),
            )
        )
        self.total = Signal(SUM)
        super().__init__(
            {
                "significands": In(data.ArrayLayout(SIGNIFICAND, LANES)),
                "weights": In(data.ArrayLayout(WEIGHT, LANES)),
                "shifts": In(data.ArrayLayout(SHIFT, LANES)),
                "first": In(1),
                "last": In(1),
                "advance": In(1),
                "finished": Out(SUM),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Multiply; shift and compress; add: a cycle each."""
        m = Module()
        for lane, (product, word) in enumerate(zip(self.products, self.words, strict=True)):
            m.d.sync += product.eq(self.significands[lane] * self.weights[lane])
            m.d.comb += word.eq(shifted(m, product, self.shifts[lane]))
        # The four become two here: their carries wait for the only long carry chain.
        x, y = compressed(m, self.words)
        m.d.sync += [self.pair[0].eq(x), self.pair[1].eq(y)]

        before = named(m, Mux(self.first, 0, self.running[-1]), "before")
        m.d.comb += self.total.eq(added(m, self.pair, before))
        # A cycle without work adds nothing, so that the ring may turn all the time.
        for place, following in pairwise([self.total, *self.running]):
            m.d.sync += following.eq(place)
        # What comes into the row behind the finished sums is nobody's.
        with m.If(self.last | self.advance):
            for place, following in pairwise([*self.finished_sums, self.total]):
                m.d.sync += place.eq(following)
        m.d.comb += self.finished.eq(self.finished_sums[0])
        return m


def compressed(m: Module, words: Sequence[Value]) -> tuple[Value, Value]:
    """Return two words with the sum of four shifted products modulo ``2**PAIR_BITS``, less 2**25.

    A sign s at bit t counts -s * 2**t, which is (~s) * 2**t - 2**t: so the words become unsigned,
    and need no sign extension. What four of them lack is `LACKING`.
    """
    a, b, c, d = (Cat(word[:-1], ~word[-1]) for word in words)
    x, y = rows(m, a, b, c, SHIFTED_BITS + 1)
    x, y = rows(m, x, y, d, PAIR_BITS)
    return x, y


def added(m: Module, pair: Sequence[Value], before: Value) -> Value:
    """Return the sum of what `compressed` made and a running sum, modulo ``2**32``."""
    x, y = pair
    # `x` has no bit 25: what is lacking, -2**25, fits in there and above.
    lacking = Cat(x[: PAIR_BITS - 1], Const(-1, len(before) - PAIR_BITS + 1))
    if current_target() is Target.FPGA:
        return (lacking + y) + before
    x, y = rows(m, lacking, y, before, len(before))
    return prefix_sum(m, x, y)[: len(before)]


def rows(m: Module, a: Value, b: Value, c: Value, width: int) -> tuple[Value, Value]:
    """Return a row of full adders' sums and carries."""
    total, carry = full_adders(a, b, c, width)
    return named(m, total, "sums"), named(m, carry, "carries")
