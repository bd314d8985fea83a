"""Threshold of the k largest values in a memory, found bit by bit without sorting."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from hdl.arith.adder_tree import tree_sum
from hdl.parameters import require, require_range
from hdl.unit import Unit

SEARCH_OVERHEAD = 3
"""Cycles of a pass in addition to its words: read, comparison, count."""


def up_to(position: Value, word: Value, lanes: int) -> Value:
    """Return one bit per value of a word: whether its position is at most the given one.

    Parameters
    ----------
    position : Value
        Position of a value; `lanes` consecutive positions share a word.
    word : Value
        Index of the word.
    lanes : int
        Values per word, a power of two of at least 2.
    """
    lane_bits = ceil_log2(lanes)
    lane, own_word = position[:lane_bits], position[lane_bits:]
    # Avoid a comparison with zero, which would be constant: lane 0 is included in the position's
    # word. The sign of a difference also works for a constant position.
    here = Cat(1, *(number <= lane for number in range(1, lanes)))
    earlier = (word - own_word)[-1]
    return earlier.replicate(lanes) | (here & (word == own_word).replicate(lanes))


class ThresholdSearch(Unit):
    """Find the k-th largest candidate in a memory, and how many candidates equal to it to include.

    Each pass decides one bit of the threshold, from the highest down: the bit is set if at least k
    candidates reach the threshold with it. If there are fewer than k candidates, the threshold is
    the lowest value, and all candidates are among the k largest.

    **Latency** ``passes * (words + 3)`` cycles from `start` to `done`, with one pass per bit from
    `highest` down.

    **Numerics** exact.

    Parameters
    ----------
    shape : Shape
        Shape of a value; 1 to 32 bits. Signed values are searched in offset binary.
    lanes : int
        Values per word, a power of two from 2 to 64.
    words : int
        Maximum number of words in the memory, 1 to 2**16.
    most : int
        The largest k.

    Members
    -------
    start : In(1)
        Start a search.
    wanted : In(range(most + 1))
        The number k; must be stable from `start` until the results are no longer used.
    last_word : In(range(words))
        Address of the last word with a candidate; must be stable until `done`.
    highest : In(bits)
        Valid with `start`, one-hot: the highest bit that any value (in offset binary if signed) may
        have set.
    read_enable, read_address : Out
        Read request; `word` must be valid in the next cycle.
    candidates : In(lanes)
        Mask of the candidates in the word that is being read.
    word : In(ArrayLayout(shape, lanes))
        The last read word.
    done : Out(1)
        The search ends in this cycle; the results are valid from the next cycle to the next
        `start`.
    threshold : Out(shape)
        The k-th largest candidate.
    ties : Out(range(most + 1))
        Number of candidates equal to the threshold among the k; larger if there are fewer than k
        candidates.

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

    def elaborate(self, platform: object) -> Module:
        """Read, compare, count; decide the bit after the last word."""
        m = Module()
        # `level` contains the bits found so far, `step` is the bit under test.
        level = Signal(self.shape.width, reset_less=True)
        step, trial = Signal.like(level), Signal.like(level)
        reads, word = Signal(), Signal.like(self.read_address, reset_less=True)
        read_ends, compare_ends, decides = Signal(), Signal(), Signal()
        candidates, reaches = Signal(self.lanes, reset_less=True), Signal(self.lanes)
        total = Signal(bits_for(self.lanes * self.words), reset_less=True)
        above = Signal.like(self.wanted, reset_less=True)

        # Three stages follow a read: the word, the comparison, the count.
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

        # A pass decides one bit; the search ends after the lowest bit.
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
                # The last rejected threshold is the one just above the result.
                m.d.sync += above.eq(total)
        return m

    def _value(self, bits: Value) -> Value:
        """Convert bits with the order of unsigned numbers to a value."""
        if not self.shape.signed:
            return bits
        return (bits ^ (1 << self.shape.width - 1)).as_signed()
