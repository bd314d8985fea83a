"""The drain: reads of sums from the compute units, while the next ones accumulate."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.group_scaler import GroupScaler
from hdl.p3llm.places import Places
from hdl.unit import Unit

COMPLETE = 4
"""Cycles from the command that completes sums to the first read, in addition to `pumps`."""


class Drain(Unit):
    """Read the sums of all units, half of a unit's elements per command.

    **Latency** ``pumps + 4`` cycles from `arm` to the first read. **Throughput** one read in every
    cycle with `grant`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    arm : In(struct)
        `valid`: a command that completes sums is issued. Whether `both` inputs have sums; the
        `last` unit that has sums; their destinations (`places`); the fields of the tag for
        `SumAccumulator`.
    wants, grant : Out, In
        A read is requested; it is issued in this cycle.
    unit, upper, advance : Out
        Unit and half of the read, and whether the unit advances to the next input's sums.
    tag : Out(struct)
        Tag of the read; valid with `grant`.
    busy : Out(1)
        Sums are left to be read.
    pump, wide, high : Out
        With `group_scaling`: the input whose sums are read; the sums are totals; the read is that
        of the bits above 32, which precedes the others.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.scales = p.channel.unit.group_scaling
        tag = SumAccumulator.tag_layout(p)
        super().__init__(
            {
                "arm": In(self.arm_layout(p)),
                "wants": Out(1),
                "grant": In(1),
                "unit": Out(range(p.units)),
                "upper": Out(1),
                "advance": Out(1),
                "tag": Out(tag),
                "busy": Out(1),
                **({"pump": Out(1), "wide": Out(1), "high": Out(1)} if self.scales else {}),
            }
        )

    @staticmethod
    def arm_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of `arm`; `table` is the place of the scales, without the unit.

        With `group_scaling`, `wide` marks totals.
        """
        return data.StructLayout(
            {
                "valid": 1,
                "both": 1,
                "last": range(p.units),
                "places": data.ArrayLayout(Places(p).result_bits, 2),
                "weighted": 1,
                "more": 1,
                "final": 1,
                "table": 3,
                "odd": 1,
                **({"wide": 1} if p.channel.unit.group_scaling else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count halves, inputs and units."""
        m = Module()
        p, tag = self.parameters, self.tag
        held = Signal(self.arm_layout(p))
        unit_ = p.channel.unit
        waits = unit_.pumps + COMPLETE
        of_totals = GroupScaler.latency(unit_.elements, unit_.pumps)
        wait = Signal(range(of_totals if self.scales else waits))
        upper, pump, unit = Signal(), Signal(), Signal(range(p.units))
        m.d.comb += [
            self.busy.eq(held.valid),
            # Sums can be read once they have passed the units' pipelines.
            self.wants.eq(held.valid & (wait == 0)),
            self.unit.eq(unit),
            self.upper.eq(upper),
            # The unit advances to the second input's sums after the last half of the first one's.
            self.advance.eq(upper & held.both & ~pump),
            tag.valid.eq(self.grant),
            tag.weighted.eq(held.weighted),
            tag.more.eq(held.more),
            # Of two inputs only the first one's sums are tracked: the second one's are read between
            # them.
            tag.final.eq(held.final & ~pump if p.batch > 1 else held.final),
            # Two results per unit, lower elements first.
            tag.place.eq(held.places[pump] + Cat(upper, unit)[: ceil_log2(p.units) + 1]),
            tag.scales.eq(Cat(unit[: ceil_log2(p.units)], held.table)),
            # A column of scales serves two rounds, each in two halves.
            tag.part.eq(Cat(upper, held.odd)),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        grant, complete = self.grant, waits - 1
        if self.scales:
            grant = self.grant & ~self.high
            complete = Mux(self.arm.wide, of_totals - 1, waits - 1)
            self._totals(m, held, upper, pump)
        with m.If(grant):
            m.d.sync += upper.eq(~upper)
            with m.If(upper):
                m.d.sync += pump.eq(held.both & ~pump)
            # All sums of a unit are read: continue with the next unit.
            with m.If(upper & (pump | ~held.both)):
                m.d.sync += unit.eq(Mux(unit == held["last"], 0, unit + 1))
                with m.If(unit == held["last"]):
                    m.d.sync += held.valid.eq(0)
        # Not while busy: the sequencer delays the last column of a round.
        with m.If(self.arm.valid):
            m.d.sync += [held.eq(self.arm), wait.eq(complete)]
        return m

    def _totals(self, m: Module, held: Any, upper: Signal, pump: Signal) -> None:
        """Read the high bits of an input's totals before both halves of the low bits."""
        m.d.comb += [
            self.pump.eq(pump),
            self.wide.eq(held.wide),
            self.tag.wide.eq(held.wide),
            self.tag.high.eq(self.high),
        ]
        with m.If(self.grant):
            m.d.sync += self.high.eq(held.wide & ~self.high & upper)
        with m.If(self.arm.valid):
            m.d.sync += self.high.eq(self.arm.wide)
