"""Selection of a layer's victims among the new vote counts, Figure 7 of the paper."""

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit
from hdl.veda.voting.voting_parameters import CountUse, VotingEngineParameters


class VictimSelector(Unit):
    """Output the counts that remain, and report the victims, as the new counts arrive.

    A single victim is the slot with the largest count of its pass (`CountUse.ARGMAX`). Several
    victims (`CountUse.SELECT`) are all slots above a threshold, and as many of those equal to it as
    needed, in slot order. If fewer slots are eligible than victims are wanted, the absent victims
    are reported after the pass, with `found` = 0.

    **Latency** 0 cycles for counts, 1 cycle for victims. **Throughput** one count per cycle; an
    absent victim takes one cycle.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions of the voting engine.

    Members
    -------
    totals : In(stream)
        The new count `votes` of each `slot` of a pass, in slot order, and its `use`; `first` and
        `last` mark the pass's first and last slot.
    begin : In(1)
        A pass of several victims begins: no count is valid, and `wanted` and `ties` are sampled.
    wanted : In
        Number of victims.
    threshold, ties : In
        The smallest count of a victim, and how many victims have that count. The threshold is
        stable until the pass has ended.
    counts : Out(stream)
        The counts of the slots that remain.
    victims : Out(stream)
        As in `VotingEngine`.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "totals": In(stream.Signature(p.total_layout)),
                "begin": In(1),
                "wanted": In(p.threshold.length_bits),
                "threshold": In(p.count_bits),
                "ties": In(p.threshold.length_bits),
                "counts": Out(stream.Signature(unsigned(p.count_bits))),
                "victims": Out(stream.Signature(p.victim_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare each count with the largest so far, and with the threshold."""
        m = Module()
        p, total = self.parameters, self.totals.payload
        m.submodules.reports = reports = RegisterSlice(shape=p.victim_layout)
        connect_streams(m, reports.sink, self.victims)
        offered, victim = reports.source, reports.source.payload
        # Victims that have yet to be reported, and those of them that are equal to the threshold.
        left, ties = Signal.like(self.wanted), Signal.like(self.ties, reset_less=True)
        moves, eligible, equal, selected = Signal(), Signal(), Signal(), Signal()
        named, remains, victim_fits, count_fits = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            moves.eq(self.totals.valid & self.totals.ready),
            eligible.eq(total.slot >= p.reserved if p.protect_sink and p.reserved else 1),
            equal.eq((total.votes == self.threshold) & ties.any()),
            selected.eq(
                (total.use == CountUse.SELECT) & eligible & ((total.votes > self.threshold) | equal)
            ),
            named.eq(((total.use == CountUse.ARGMAX) & total.last) | selected),
            # Counts of several victims are not output: the reader packs the remaining counts.
            remains.eq((total.use != CountUse.STORE) & ~selected),
            victim_fits.eq(~named | offered.ready),
            count_fits.eq(~remains | self.counts.ready),
            self.counts.payload.eq(total.votes),
        ]
        largest = self._largest(m, moves, eligible)
        with m.FSM():
            with m.State("COMPARE"):
                # A count and the victim that it names are transferred in the same cycle.
                m.d.comb += [
                    self.counts.valid.eq(self.totals.valid & remains & victim_fits),
                    offered.valid.eq(self.totals.valid & named & count_fits),
                    self.totals.ready.eq(victim_fits & count_fits),
                    victim.eq(largest),
                ]
                with m.If(selected):
                    m.d.comb += [
                        victim.slot.eq(total.slot),
                        victim.votes.eq(total.votes),
                        victim.found.eq(1),
                    ]
                with m.If(moves & total.last & (total.use == CountUse.SELECT) & (left != selected)):
                    m.next = "REPORT_ABSENT"
            with m.State("REPORT_ABSENT"):
                m.d.comb += offered.valid.eq(1)
                with m.If(offered.ready & (left == 1)):
                    m.next = "COMPARE"
        with m.If(self.begin):
            m.d.sync += [left.eq(self.wanted), ties.eq(self.ties)]
        with m.Elif(offered.valid & offered.ready):
            # A single victim does not use the numbers: the next pass that does loads them.
            m.d.sync += [left.eq(left - 1), ties.eq(ties - equal)]
        return m

    def _largest(self, m: Module, moves: Value, eligible: Value) -> data.View:
        """Return the largest count of the pass up to this slot; ties resolve to the lowest slot."""
        total = self.totals.payload
        layout = self.parameters.victim_layout
        before, largest = Signal(layout, reset_less=True), Signal(layout)
        # At the first slot of a pass there is no earlier count.
        none = total.first | ~before.found
        m.d.comb += [largest.eq(before), largest.found.eq(~none)]
        with m.If(eligible & (none | (total.votes > before.votes))):
            m.d.comb += [
                largest.slot.eq(total.slot),
                largest.votes.eq(total.votes),
                largest.found.eq(1),
            ]
        with m.If(moves):
            m.d.sync += before.eq(largest)
        return largest
