"""Threshold between the high and the low scores of Kelle's refresh policy: the median.

Section 4.2. The paper's average interval of 1.05 ms is the harmonic mean of the four intervals with
equal weights, so the two groups are equally large.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Shape, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class RefreshThreshold(Unit):
    """Maintain a histogram of all scores, and compute its median.

    The threshold is the largest score t for which at least half of the valid entries have a score
    of t or more. With few bits, many entries have the same score: of the entries with score t,
    `quota` belong to the upper half.

    **Latency** the threshold is exact `settle_cycles` of the parameters after the last change.
    **Throughput** one change per cycle.

    Parameters
    ----------
    parameters : RefreshParameters
        Number of entries, and bits of their scores.

    Members
    -------
    update : In(score)
        New score and validity of an entry, while `update_valid`.
    clear : In(1)
        Valid with `update_valid`: ignore the previous score of the entry, which is undefined.
    threshold : Out(score_bits)
        Smallest score of the HST group.
    quota : Out
        Number of entries with that score that belong to the HST group.
    """

    def __init__(self, *, parameters: RefreshParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "update": In(parameters.score_layout),
                "update_valid": In(1),
                "clear": In(1),
                "threshold": Out(parameters.score_bits),
                "quota": Out(parameters.quota_bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Exchange old and new score, update the histogram, and scan it from the top."""
        m = Module()
        p = self.parameters
        width = Shape.cast(p.known_layout).width
        m.submodules.known = known = Memory(depth=p.entries, width=width)
        after = Signal(p.known_layout, reset_less=True)
        counted = Signal()
        m.d.comb += [
            known.read_enable.eq(self.update_valid),
            known.read_address.eq(self.update.entry),
            known.write_enable.eq(self.update_valid),
            known.write_address.eq(self.update.entry),
            known.write_data.eq(Cat(self.update.score, self.update.valid)),
        ]
        # After a reset the memory's contents are undefined and must not be counted.
        m.d.sync += [
            counted.eq(self.update_valid & ~self.clear),
            after.score.eq(self.update.score),
            after.valid.eq(self.update.valid),
        ]
        # The memory returns old data, so a read and a write of the same entry are an exchange.
        before = data.View(p.known_layout, known.read_data)
        bins = 1 << p.score_bits
        count = bits_for(p.entries)
        histogram = Array(Signal(count, name=f"bin_{score}") for score in range(bins))
        total = Signal(count)
        # The old and the new bin may be the same: the decrement and the increment cancel.
        with m.If(counted):
            m.d.sync += total.eq(total + after.valid - before.valid)
            for score, size in enumerate(histogram):
                joins = after.valid & (after.score == score)
                leaves = before.valid & (before.score == score)
                m.d.sync += size.eq(size + joins - leaves)

        # The scan repeats endlessly: one bin per cycle from the highest score, until half is
        # reached.
        score = Signal(p.score_bits, init=bins - 1)
        above = Signal(count)
        reached = Signal(count)
        m.d.comb += reached.eq(above + histogram[score])
        half = Signal(count)
        m.d.comb += half.eq((total + 1) >> 1)
        with m.If((reached >= half) | (score == 0)):
            m.d.sync += [
                self.threshold.eq(score),
                self.quota.eq(half - above),
                score.eq(bins - 1),
                above.eq(0),
            ]
        with m.Else():
            m.d.sync += [score.eq(score - 1), above.eq(reached)]
        return m
