"""The k-th largest of the values in a memory, as a threshold: a bit a pass, with nothing sorted."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from hdl.arith.adder_tree import tree_sum
from hdl.parameters import require, require_range
from hdl.unit import Unit

SEARCH_OVERHEAD = 3
"""Cycles of a pass beyond its words: the word, the comparisons, the count."""


def up_to(position: Value, word: Value, lanes: int) -> Value:
    """Return a bit for each value of a word: whether its position is at most the given one.

    Parameters
    ----------
    position : Value
        A position, `lanes` of which share a word.
    word : Value
        The number of the word.
    lanes : int
        Values of a word, a power of two from 2 on.
    """
    lane_bits = ceil_log2(lanes)
    lane, own_word = position[:lane_bits], position[lane_bits:]
    # Nothing is compared with a zero, which would be constant: lane 0 is in each word that
    # the position is in, and the sign of a difference also holds for a constant position.
    here = Cat(1, *(number <= lane for number in range(1, lanes)))
    earlier = (word - own_word)[-1]
    return earlier.replicate(lanes) | (here & (word == own_word).replicate(lanes))


class ThresholdSearch(Unit):
    """Find the k-th largest of a memory's candidates, and how many equal to it are among the k.

    Each pass tries one more bit of the threshold, from the highest down: it stays if at least k
    candidates reach the threshold with it. If there are fewer than k candidates, the threshold is
    the lowest value, and all of them are among the k.

    **Latency** ``passes * (words + 3)`` cycles from `start` to `done`, with a pass for each bit
    from `highest` down.

    **Numerics** exact.

    Parameters
    ----------
    shape : Shape
        Of a value; 1 to 32 bits. Signed values are searched in offset binary.
    lanes : int
        Values of a word, a power of two from 2 to 64.
    words : int
        Words of the memory at most, 1 to 2**16.
    most : int
        The largest k.

    Members
    -------
    start : In(1)
        Begin.
    wanted : In(range(most + 1))
        The k; must stand from `start` on as long as the results are used.
    last_word : In(range(words))
        The last word with a candidate; must stand until `done`.
    highest : In(bits)
        One bit, with `start`: the highest that any value, in offset binary if signed, may have.
    read_enable, read_address : Out
        Word that must be there in the next cycle.
    candidates : In(lanes)
        Which values of the word that is being read are candidates.
    word : In(ArrayLayout(shape, lanes))
        The word last read.
    done : Out(1)
        In this cycle the search ends; the results stand from the next one until the next `start`.
    threshold : Out(shape)
        The k-th largest.
    ties : Out(range(most + 1))
        Candidates equal to it that are among the k, or more if there are fewer than k candidates.

    Raises
    ------
    ValueError
        If a dimension is out of range.
    """

    def __init__(self, *, shape: Shape, lanes: int, words: int, most: int) -> None:
        self.shape = Shape.cast(shape)
        require_range("width", self.shape.width, 1, 32)
        require_range("lanes", lanes, 2, 64)
        require(lanes & (lanes - 1) == 0, "lanes must be a power of two", lanes)
        require_range("words", words, 1, 1 << 16)
        require_range("most", most, 1, lanes * words)
        self.lanes, self.words, self.most = lanes, words, most
        super().__init__(
            {
                "start": In(1),
                "wanted": In(bits_for(most)),
                "last_word": In(max(ceil_log2(words), 1)),
                "highest": In(self.shape.width),
                "read_enable": Out(1),
                "read_address": Out(max(ceil_log2(words), 1)),
                "candidates": In(lanes),
                "word": In(data.ArrayLayout(self.shape, lanes)),
                "done": Out(1),
                "threshold": Out(self.shape),
                "ties": Out(bits_for(most)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read, compare, count; behind the last word decide on the bit."""
        m = Module()
        # `level` are the bits found, `step` is the bit on trial.
        level = Signal(self.shape.width, reset_less=True)
        step, trial = Signal.like(level), Signal.like(level)
        reads, word = Signal(), Signal.like(self.read_address, reset_less=True)
        read_ends, compare_ends, decides = Signal(), Signal(), Signal()
        candidates, reaches = Signal(self.lanes, reset_less=True), Signal(self.lanes)
        total = Signal(bits_for(self.lanes * self.words), reset_less=True)
        above = Signal.like(self.wanted, reset_less=True)

        # Three stages behind a read: the word, the comparison, the count.
        ends = Signal()
        m.d.comb += [
            trial.eq(level | step),
            ends.eq(reads & (word == self.last_word)),
            self.read_enable.eq(reads),
            self.read_address.eq(word),
            self.threshold.eq(self._value(level)),
            self.ties.eq(self.wanted - above),
            self.done.eq(decides & step[0]),
        ]
        m.d.sync += [
            candidates.eq(Mux(reads, self.candidates, 0)),
            read_ends.eq(ends),
            compare_ends.eq(read_ends),
            decides.eq(compare_ends),
            total.eq(total + tree_sum(list(reaches))),
        ]
        for lane in range(self.lanes):
            reached = self.word[lane] >= self._value(trial)
            m.d.sync += reaches[lane].eq(candidates[lane] & reached)
        with m.If(reads):
            m.d.sync += word.eq(word + 1)
        with m.If(ends):
            m.d.sync += reads.eq(0)

        # A pass decides on one bit; behind the lowest one the search is done.
        next_pass = self.start | (decides & ~step[0])
        with m.If(next_pass):
            m.d.sync += [reads.eq(1), word.eq(0), total.eq(0)]
        with m.If(self.start):
            m.d.sync += [step.eq(self.highest), level.eq(0), above.eq(0)]
        with m.Elif(decides):
            m.d.sync += step.eq(step >> 1)
            with m.If(total >= self.wanted):
                m.d.sync += level.eq(trial)
            with m.Else():
                # The last threshold that too few reach is the one just above the result.
                m.d.sync += above.eq(total)
        return m

    def _value(self, bits: Value) -> Value:
        """Return the value of bits whose order is that of unsigned numbers."""
        if not self.shape.signed:
            return bits
        return (bits ^ (1 << self.shape.width - 1)).as_signed()
