"""The importance that a token must have to be kept for it: the k-th largest of a text.

Section 4.1 keeps the best tokens between sinks and window. To find them nothing is sorted: the k-th
largest value is found a bit a pass, as the largest threshold that at least k tokens reach.
"""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.arith.adder_tree import tree_sum
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.unit import Unit


def score_of(bits: Value) -> Value:
    """Turn offset binary, in which a search is from the top bit down, into a score."""
    return (bits ^ (1 << len(bits) - 1)).as_signed()


class ThresholdSearch(Unit):
    """Find the k-th largest importance of the candidates, and how many equal to it are kept.

    Candidates are the tokens between sinks and window; k is what they leave of the budget. Each
    pass tries one more bit of the threshold, from the most significant one: it stays if at least k
    candidates reach the threshold with it.

    **Latency** score_width * (tiles + 3) cycles, of the text's tiles, from `start` to `done`.

    **Numerics** exact.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions.

    Members
    -------
    start : In(1)
        Begin; the text has more tokens than the budget.
    text_last : In(position)
        The text's last position.
    read_enable, read_address : Out
        Tile whose importances must be there in the next cycle.
    word : In(ArrayLayout(importance, rows))
        The importances.
    done : Out(1)
        In this cycle the search ends; the results stand from the next one until the next `start`.
    threshold : Out(importance)
        The k-th largest.
    ties : Out(count)
        Candidates equal to it that are kept.
    """

    def __init__(self, *, parameters: PrefillSelectorParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "text_last": In(p.place_bits),
                "read_enable": Out(1),
                "read_address": Out(p.tile_bits),
                "word": In(p.word_layout),
                "done": Out(1),
                "threshold": Out(p.word_layout.elem_shape),
                "ties": Out(bits_for(p.places)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read, compare, count; after the last tile decide on the bit."""
        m = Module()
        p = self.parameters
        width = Shape.cast(p.word_layout.elem_shape).width
        # `level` are the bits found, `step` is the bit on trial.
        level, step = Signal(width, reset_less=True), Signal(width)
        reads, tile = Signal(), Signal(p.tile_bits, reset_less=True)
        read_ends, compare_ends, decides = Signal(), Signal(), Signal()
        candidates = Signal(p.rows, reset_less=True)
        reaches = Signal(p.rows, reset_less=True)
        total = Signal(bits_for(p.context), reset_less=True)
        above = Signal(bits_for(p.places), reset_less=True)

        # Three stages behind a read: the word, the comparison, the count.
        ends = Signal()
        inside = p.up_to((self.text_last - p.eviction.window)[: p.place_bits], tile)
        # Sinks and window are kept in any case.
        if p.eviction.sinks:
            inside &= ~p.up_to(Const(p.eviction.sinks - 1, p.place_bits), tile)
        trial = Signal(width)
        m.d.comb += [
            trial.eq(level | step),
            ends.eq(reads & (tile == self.text_last[p.eviction.evictor.row_bits :])),
            self.read_enable.eq(reads),
            self.read_address.eq(tile),
            self.threshold.eq(score_of(level)),
            self.ties.eq(p.places - above),
            self.done.eq(decides & step[0]),
        ]
        m.d.sync += [
            candidates.eq(Mux(reads, inside, 0)),
            read_ends.eq(ends),
            compare_ends.eq(read_ends),
            decides.eq(compare_ends),
            total.eq(total + tree_sum(list(reaches))),
        ]
        for lane in range(p.rows):
            m.d.sync += reaches[lane].eq(candidates[lane] & (self.word[lane] >= score_of(trial)))
        with m.If(reads):
            m.d.sync += tile.eq(tile + 1)
        with m.If(ends):
            m.d.sync += reads.eq(0)

        # A pass decides on one bit; behind the lowest one the search is done.
        next_pass = self.start | (decides & ~step[0])
        with m.If(next_pass):
            m.d.sync += [reads.eq(1), tile.eq(0), total.eq(0)]
        with m.If(self.start):
            m.d.sync += [step.eq(1 << width - 1), level.eq(0), above.eq(0)]
        with m.Elif(decides):
            m.d.sync += step.eq(step >> 1)
            with m.If(total >= p.places):
                m.d.sync += level.eq(trial)
            with m.Else():
                # The last threshold that too few reach is the one just above the result.
                m.d.sync += above.eq(total)
        return m
