"""The drain: reads of sums from the compute units, while the next ones accumulate."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.npu.total_collector import TotalCollector
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.group_scaler import GroupScaler
from hdl.p3llm.places import Places
from hdl.unit import Unit

COMPLETE = 4
"""Cycles from the command that completes sums to the first read, in addition to `pumps`."""


class Drain(Unit):
    """Read the sums of all units, half of a unit's elements per command.

    The bits above 32 of an input's totals are read before both halves of the other bits. If two
    units have parts of the same totals, these units are read one after the other.

    **Latency** ``pumps + 4`` cycles from `arm` to the first read of sums, `GroupScaler.latency` to
    that of totals. **Throughput** one read in every
    cycle with `grant`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    arm : In(struct)
        `valid`: a command that completes sums is issued. Whether `both` inputs have sums; the
        `last` unit that has sums; their destinations (`places`); whether they are totals (`wide`),
        of which two units have parts (`shared`).
    wants, grant : Out, In
        A read is requested; it is issued in this cycle.
    unit, upper, advance : Out
        Unit and half of the read, and whether the unit advances to the next input's sums.
    tag : Out(struct)
        Tag of the read; valid with `grant`.
    busy : Out(1)
        Sums are left to be read.
    pump, wide, high : Out
        The input whose sums are read; the sums are totals; the read is that of the bits above 32.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "arm": In(self.arm_layout(p)),
                "wants": Out(1),
                "grant": In(1),
                "unit": Out(range(p.units)),
                "upper": Out(1),
                "advance": Out(1),
                "tag": Out(TotalCollector.tag_layout(p)),
                "busy": Out(1),
                "pump": Out(1),
                "wide": Out(1),
                "high": Out(1),
            }
        )

    @staticmethod
    def arm_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of `arm`."""
        return data.StructLayout(
            {
                "valid": 1,
                "both": 1,
                "last": range(p.units),
                "places": data.ArrayLayout(Places(p).result_bits, 2),
                "wide": 1,
                "shared": 1,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count halves, inputs and units."""
        m = Module()
        p, tag = self.parameters, self.tag
        held = Signal(self.arm_layout(p))
        unit_ = p.channel.unit
        # Sums, and totals, can be read once they have passed the units' pipelines.
        of_sums = unit_.pumps + COMPLETE
        of_totals = GroupScaler.latency(unit_.elements, unit_.pumps)
        wait = Signal(range(of_totals))
        upper, pump, unit = Signal(), Signal(), Signal(range(p.units))
        # Of shared totals, the lowest bit of the count selects one of two units with the same tile.
        paired = Cat(unit[1:], unit[0])
        tile = Mux(held.shared, unit >> 1, unit)
        final = held.wide & ~pump if p.batch > 1 else held.wide
        m.d.comb += [
            self.busy.eq(held.valid),
            self.wants.eq(held.valid & (wait == 0)),
            self.unit.eq(Mux(held.shared, paired, unit)),
            self.upper.eq(upper),
            self.pump.eq(pump),
            self.wide.eq(held.wide),
            # The unit advances to the second input's sums after the last half of the first one's.
            self.advance.eq(upper & held.both & ~pump),
            tag.valid.eq(self.grant),
            # Of two inputs only the first one's totals are tracked: the second one's are read
            # between them.
            tag.final.eq(final & ~tag.part),
            # Two results per tile, lower elements first.
            tag.place.eq(held.places[pump] + Cat(upper, tile)[: ceil_log2(p.units) + 1]),
            tag.part.eq(held.shared & ~unit[0]),
            tag.added.eq(held.shared & unit[0]),
            tag.pump.eq(pump),
            tag.upper.eq(upper),
            tag.wide.eq(held.wide),
            tag.high.eq(self.high),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(self.grant):
            m.d.sync += self.high.eq(held.wide & ~self.high & upper)
        with m.If(self.grant & ~self.high):
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
            m.d.sync += [
                held.eq(self.arm),
                self.high.eq(self.arm.wide),
                wait.eq(Mux(self.arm.wide, of_totals - 1, of_sums - 1)),
            ]
        return m
