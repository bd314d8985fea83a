"""Reads of factors, FP16 numbers, from the banks into the NPU, unit by unit."""

from amaranth.hdl import Module, Signal

from hdl.p3llm.control.product_command import next_unit, product_members, read_unit
from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import P3llmParameters
from hdl.unit import Unit


class FactorFetch(Unit):
    """Read a vector of factors: norm weights, row scales or smoothing factors.

    **Latency** 1 cycle from `begin` to the first command. **Throughput** one column of one unit per
    command.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin : In(1)
        Read the vector of `instruction`; not while one is being read.
    instruction : In(struct)
        `fetch_length`, the number of positions, and the first of `columns`, the destination in the
        NPU.
    commands : Out(stream)
        Reads, see `product_command`.
    done : Out(1)
        The last column is read in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        super().__init__(product_members(p))

    def elaborate(self, platform: object) -> Module:
        """Count positions and, within each, units."""
        m = Module()
        p, commands, given = self.parameters, self.commands, self.instruction
        left, unit = Signal(MemoryBits(p).fetch_length), Signal(range(p.units))
        place = Signal.like(given.columns[0])
        ends = next_unit(m, unit, commands.valid & commands.ready, p.units)
        read_unit(m, commands.payload, unit, p.units)
        m.d.comb += [
            commands.valid.eq(left != 0),
            commands.payload.reads.factors.eq(1),
            commands.payload.reads.place.eq(place),
            self.done.eq(ends & (left == 1)),
        ]
        with m.If(self.begin):
            m.d.sync += [left.eq(given.fetch_length), place.eq(given.columns[0])]
        with m.Elif(ends):
            m.d.sync += [left.eq(left - 1), place.eq(place + p.units)]
        return m
