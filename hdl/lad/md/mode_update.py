"""Update of one active position's counters and mode."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_order import number_order, number_order_key
from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import COUNT_BITS
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.unit import Unit


class ModeUpdate(Unit):
    """Find a score's interval, increment its counter, and decide whether it becomes the mode.

    **Latency** 2 cycles. **Throughput** one position per cycle. **Numerics** the interval is the
    number of lower bounds below the difference; a NaN is in interval 0.

    Parameters
    ----------
    parameters : ModeDiscrepancyModuleParameters
        Intervals, slots and register stages.

    Members
    -------
    enable : In(1)
        The registers load.
    difference : In(16)
        A score less the maximum, in FP16.
    mark : In(mark_layout)
        State of the position before the step.
    interval, mode : Out(4)
        The interval of the score, and the mode whose line the caches contain; valid one cycle
        before `result`.
    result : Out(update_layout)
        State of the position after the step.
    """

    def __init__(self, *, parameters: ModeDiscrepancyModuleParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "enable": In(1),
                "difference": In(FP16),
                "mark": In(parameters.mark_layout),
                "interval": Out(MODE_BITS),
                "mode": Out(MODE_BITS),
                "result": Out(parameters.update_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare with all bounds; one cycle later count, and compare the counters."""
        m = Module()
        p = self.parameters
        # Each bound is one unsigned comparison of keys. The key of a NaN is below all bounds.
        key, above = Signal(FP16), Signal(p.table.intervals - 1)
        m.d.comb += [
            key.eq(number_order(BINARY16, self.difference)),
            above.eq(Cat(key > number_order_key(BINARY16, code) for code in p.table.lowers)),
        ]
        # Bounds ascend: the highest comparator that is 1 gives the interval, as one bit each.
        top = p.table.intervals - 1
        chosen = Cat(~above[0], above & ~Cat(above[1:], Const(0, 1)))
        within = Signal(top + 1, reset_less=True)
        found = Signal(MODE_BITS)
        for index, one in enumerate(above, start=1):
            with m.If(one):
                m.d.comb += found.eq(index)

        mark = Signal(p.mark_layout, reset_less=True)
        # A mode code has four bits, more than a short table needs.
        old_mode = Mux(self.mark.mode > top, top, self.mark.mode)
        with m.If(self.enable):
            m.d.sync += [
                mark.eq(self.mark),
                within.eq(chosen),
                self.interval.eq(found),
                # A recent position is in no cache, as if its mode were the tail, whose line is 0.
                self.mode.eq(Mux(self.mark.recent, 0, old_mode)),
            ]

        # APID counts non-active steps in the mode's count only, which thus replaces that counter.
        # A recent position, whose history is in `counters`, has no mode yet.
        same = self.interval == self.mode
        stored = reduce(
            or_,
            (mark.counters[index] & one.replicate(COUNT_BITS) for index, one in enumerate(within)),
        )
        before, counted, update = Signal(COUNT_BITS), Signal(COUNT_BITS), Signal()
        overtakes = ~same & (counted > mark.count)
        result = Signal(p.update_layout)
        m.d.comb += [
            before.eq(Mux(same & ~mark.recent, mark.count, stored)),
            counted.eq(before + ~before.all()),
            update.eq(mark.graduates | (~mark.recent & overtakes)),
            result.position.eq(mark.position),
            result.update.eq(update),
            result.mode.eq(Mux(update, self.interval, self.mode)),
        ]
        for index, one in enumerate(within):
            fresh = ~mark.recent & (self.mode == index)
            counter = Mux(fresh, mark.count, mark.counters[index])
            m.d.comb += result.counters[index].eq(Mux(one, counted, counter))
        young = mark.recent & ~mark.graduates
        own = Mux(update | same, counted, mark.count)
        m.d.comb += result.count.eq(Mux(young, 0, own))
        with m.If(self.enable):
            m.d.sync += self.result.eq(result)
        return m
