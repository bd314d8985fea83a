"""Reads of the scales of a set of keys, and of the values of the same tokens, into the NPU."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hdl.p3llm.control.product_command import next_unit, product_members, read_unit
from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.unit import Unit


class ScaleFetch(Unit):
    """Read the FP16 scales of one set of keys after the other, unit by unit.

    A set has `KEY_SET` positions of scales of keys, one per round of tokens, then as many of
    values. Positions of rounds without tokens are skipped.

    **Latency** 1 cycle from `starts` to the first command. **Throughput** one column of one unit
    per command.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin : In(1)
        The next set is the first one of `instruction`, whose `columns` are the destinations of
        scales of keys and of values.
    instruction : In(struct)
        The product.
    starts : In(1)
        Read a set; not while one is being read.
    rounds : In
        Number of rounds of tokens from this set on; held until the set is read.
    commands : Out(stream)
        Reads, see `product_command`.
    done : Out(1)
        The last column of the set is read in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        super().__init__(product_members(p, starts=In(1), rounds=In(MemoryBits(p).rounds)))

    def elaborate(self, platform: object) -> Module:
        """Count units and rounds, of the scales of keys, then of those of values."""
        m = Module()
        p, commands, given = self.parameters, self.commands, self.instruction
        running, of_values = Signal(), Signal()
        round_, unit = Signal(range(KEY_SET)), Signal(range(p.units))
        places = [Signal.like(given.columns[i], name=f"place_{i}") for i in range(2)]
        # A full set, or the rounds that are left.
        rounds = Mux(self.rounds > KEY_SET, KEY_SET, self.rounds)[: ceil_log2(KEY_SET) + 1]
        last_round = round_ == (rounds - 1)[: len(round_)]
        skipped = Mux(last_round, KEY_SET - rounds, 0)
        ends = next_unit(m, unit, commands.valid & commands.ready, p.units)
        read_unit(m, commands.payload, unit, p.units, 1 + skipped)
        m.d.comb += [
            commands.valid.eq(running),
            commands.payload.reads.factors.eq(1),
            commands.payload.reads.place.eq(Mux(of_values, places[1], places[0])),
            self.done.eq(ends & last_round & of_values),
        ]
        with m.If(ends):
            m.d.sync += round_.eq(Mux(last_round, 0, round_ + 1))
            with m.If(last_round):
                m.d.sync += of_values.eq(~of_values)
            for number, place in enumerate(places):
                with m.If(of_values == number):
                    m.d.sync += place.eq(place + p.units)
        with m.If(self.starts):
            m.d.sync += running.eq(1)
        with m.Elif(self.done):
            m.d.sync += running.eq(0)
        with m.If(self.begin):
            m.d.sync += [place.eq(given.columns[i]) for i, place in enumerate(places)]
        return m
