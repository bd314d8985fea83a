"""Sequence of the reads of a step's columns (AC.1 and AC.2)."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.unit import Unit


class ColumnPass(Unit):
    """Read all groups of columns, then wait until their mode-based parts are valid.

    **Latency** 1 cycle from `begin` to the first read, `part_latency` cycles from the last read to
    `complete`. **Throughput** one pass at a time.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number of columns and latencies.

    Members
    -------
    begin : In(1)
        Begin a pass; only if `idle`.
    idle : Out(1)
        No pass is in progress.
    read, group : Out
        Read this group of columns.
    passing : Out(1)
        An update must not begin in this cycle: the vector units still have columns when it needs
        them.
    complete : Out(1)
        The last mode-based parts are valid from the next cycle on.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {"begin": In(1), "group": Out(parameters.group_shape)}
            | {name: Out(1) for name in ("idle", "read", "passing", "complete")}
        )

    def elaborate(self, platform: object) -> Module:
        """Count the groups, then the cycles of the latency."""
        m = Module()
        p = self.parameters
        group, left = Signal(p.group_shape), Signal(range(p.part_latency + 1))
        m.d.comb += self.group.eq(group)
        with m.FSM(name="columns") as fsm:
            with m.State("IDLE"):
                m.d.sync += group.eq(0)
                with m.If(self.begin):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.eq(1)
                m.d.sync += [group.eq(group + 1), left.eq(p.part_latency)]
                # An update's first product begins `multiply_stages` + 2 cycles later, the last
                # column's 2 cycles after its read.
                if (least := p.groups - p.vector.multiply_stages) > 0:
                    m.d.comb += self.passing.eq(group < least)
                with m.If(group == p.groups - 1):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.d.comb += self.complete.eq(1)
                    m.next = "IDLE"
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
        return m
