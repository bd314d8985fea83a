"""Where Kelle's refresh policy divides tokens into high and low scores: the median.

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
    """Keep a histogram of all scores, and find its median.

    The threshold is the largest score t for which at least half of the valid entries have a score
    of t or more. Few bits give many entries the same score: of those with just t, `quota` complete
    the half.

    **Latency** the threshold is exact `settle_cycles` of the parameters after the last change.
    **Throughput** one change a cycle.

    Parameters
    ----------
    parameters : RefreshParameters
        Dimensions.

    Members
    -------
    update : In(score)
        A change of an entry, while `update_valid`.
    clear : In(1)
        With `update_valid`: what was known of the entry does not count.
    threshold : Out(score_bits)
        Smallest score of the HST group.
    quota : Out
        How many entries with that score belong to it.
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
        """Swap old for new in one access; count; scan the bins from the top."""
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
        # After a reset what the memory returns is unknown, and does not count.
        m.d.sync += [
            counted.eq(self.update_valid & ~self.clear),
            after.score.eq(self.update.score),
            after.valid.eq(self.update.valid),
        ]
        # The memory returns old data, so reading and writing one entry at once is an exchange.
        before = data.View(p.known_layout, known.read_data)
        bins = 1 << p.score_bits
        count = bits_for(p.entries)
        histogram = Array(Signal(count, name=f"bin_{score}") for score in range(bins))
        total = Signal(count)
        # Both may be the same bin: one leaves and one joins.
        with m.If(counted):
            m.d.sync += total.eq(total + after.valid - before.valid)
            for score, size in enumerate(histogram):
                joins = after.valid & (after.score == score)
                leaves = before.valid & (before.score == score)
                m.d.sync += size.eq(size + joins - leaves)

        # The scan never stops: a bin a cycle from the highest score, until half is reached.
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
