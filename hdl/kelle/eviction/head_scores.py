"""Coarse scores of Kelle's refresh policy: a token's importance relative to the others of its head.

Section 4.2. The paper divides tokens by their importance scores into a high-score and a low-score
group, and Section 5.1 stores the scores with 4 bits. Sums of raw scores have a sign, and each head
has its own mean, so that a common threshold would divide heads instead of tokens. Each head's
scores are therefore centred at the head's median.
"""

from amaranth.hdl import Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import bits_for, ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


def start_ports(p: EvictionParameters) -> dict[str, Member]:
    """Return the ports of `HeadScores` by which an arriving token's importance is looked up."""
    if not p.centred:
        return {}
    return {
        "start_lookup": In(1),
        "start_head": In(p.cached_head_bits),
        "start": Out(signed(p.evictor.score_width)),
    }


class HeadScores(Unit):
    """Convert importances to coarse scores around their head's median, which the unit tracks.

    The trick: a median needs no sorting if it may follow over some searches. With n importances of
    a head, of which a are at the centre or above, the centre moves by

        (2 * a - n) * spread / (2 * slots),

    where the spread is the power of two above the mean distance from the centre: Newton's step for
    a density of half the inverse spread. The centre rests where both halves have as many
    importances, and follows the sums as they grow. One adder and two counters serve all heads; a
    memory holds the state of each.

    A score that belongs to no search is the highest: that of a prefilled or of an arriving token,
    until the first search that contains the token.

    **Latency** 1 cycle from `exported` to `score`; 4 cycles from the end of a search to the state
    that the next search of its head uses. **Throughput** one importance per cycle, also from search
    to search.

    **Numerics** exact integers: ``(importance - centre) >> shift``, saturated to `score_bits`, in
    offset binary. The scores cover half of the spread to both sides. In a head with fewer tokens
    than slots the spread is smaller by their ratio, and the centre follows more slowly.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions of the policy.

    Members
    -------
    begins, head : In
        A wavefront of importances of `head`, counted over all layers, is at row 0 of the slot
        table. Its importances arrive from 2 cycles later on.
    exported : In(exported)
        An importance, while `valid`.
    ends : In(1)
        The head's search ends with the current cycle.
    forgets, forgotten : In
        While `forgets` is 1: the slots of the head `forgotten` become empty, so that its next
        search has the centre 0.
    score : Out
        The coarse score of the importance `exported` in the previous cycle.
    start_lookup, start_head : In
        With `centred`: look up the centre of a head of all layers.
    start : Out
        Its centre as of its latest search's start, from the cycle after `start_lookup` on.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "begins": In(1),
                "head": In(p.cached_head_bits),
                "exported": In(p.exported_layout),
                "ends": In(1),
                "forgets": In(1),
                "forgotten": In(p.cached_head_bits),
                "score": Out(p.score_bits),
                **start_ports(p),
            }
        )

    @property
    def state_layout(self) -> data.StructLayout:
        """State of a head: its centre, and the bits that its scores drop."""
        width = self.parameters.evictor.score_width
        return data.StructLayout({"centre": signed(width), "shift": bits_for(width)})

    def elaborate(self, platform: object) -> Module:
        """Read the head's state, convert its importances, and write the state back."""
        m = Module()
        p = self.parameters
        depth, width = max(p.cached_heads, 2), Shape.cast(self.state_layout).width
        m.submodules.states = states = Memory(depth=depth, width=width)
        # A head without a search has the centre 0; the memory is undefined after a reset.
        known = Signal(p.cached_heads)
        reads, next_head = Signal(), Signal(p.cached_head_bits, reset_less=True)
        head, is_known = Signal.like(next_head), Signal()
        m.d.sync += [reads.eq(self.begins), next_head.eq(self.head)]
        m.d.comb += [states.read_enable.eq(reads), states.read_address.eq(next_head)]
        with m.If(reads):
            m.d.sync += [head.eq(next_head), is_known.eq(known.bit_select(next_head, 1))]
        state = Signal(self.state_layout)
        with m.If(is_known):
            m.d.comb += state.eq(states.read_data)

        if p.centred:
            self._keep_start(m, head, state, reads)
        # The memory's output passes one subtraction; score and statistics follow in the next cycle.
        distance = Signal(signed(p.evictor.score_width + 1))
        shift = Signal.like(state.shift)
        valid, searched = Signal(), Signal()
        m.d.sync += [
            distance.eq(self.exported.importance - state.centre),
            shift.eq(state.shift),
            valid.eq(self.exported.valid),
            searched.eq(self.exported.searched),
        ]
        self._score(m, distance, shift, searched)
        ends = delay_line(m, self.ends, 3, name="ended", reset=True)
        learned = self._learn(m, state, distance, valid & searched, ends[2])
        ended, written = ends[3], delay_line(m, head, 3, name="written")[3]
        m.d.comb += [
            states.write_enable.eq(ended),
            states.write_address.eq(written),
            states.write_data.eq(learned),
        ]
        with m.If(ended):
            m.d.sync += known.bit_select(written, 1).eq(1)
        with m.If(self.forgets):
            m.d.sync += known.bit_select(self.forgotten, 1).eq(0)
        return m

    def _keep_start(self, m: Module, head: Signal, state: data.View, reads: Signal) -> None:
        """Keep the centre of each head for the token that arrives in the step of the search.

        The search changes the centre at its end, which may be before or after the lookup.
        """
        p = self.parameters
        depth = max(p.cached_heads, 2)
        m.submodules.starts = starts = Memory(depth=depth, width=p.evictor.score_width)
        valid = Signal()
        m.d.sync += valid.eq(reads)
        m.d.comb += [
            starts.write_enable.eq(valid),
            starts.write_address.eq(head),
            starts.write_data.eq(state.centre),
            starts.read_enable.eq(self.start_lookup),
            starts.read_address.eq(self.start_head),
            self.start.eq(starts.read_data),
        ]

    def _score(self, m: Module, distance: Signal, shift: Signal, searched: Signal) -> None:
        """Assign the coarse score of an importance by its signed distance from the centre."""
        p = self.parameters
        half = 1 << p.score_bits - 1
        scaled = Signal.like(distance)
        m.d.comb += [scaled.eq(distance >> shift), self.score.eq(2 * half - 1)]
        with m.If(searched):
            clipped = Mux(scaled >= half, half - 1, Mux(scaled < -half, -half, scaled))
            m.d.comb += self.score.eq(clipped + half)

    def _learn(
        self, m: Module, state: data.View, distance: Signal, counts: Value, ended: Value
    ) -> data.View:
        """Return the state after a search, in the cycle after `ended`.

        `ended` is 1 in the cycle after the last distance, in which the sums are complete.
        """
        p = self.parameters
        width, slot_bits = p.evictor.score_width, ceil_log2(p.evictor.slots)
        above = counts & ~distance[-1]
        # A negative distance counts less 1, so that its bits are only inverted.
        folded = (distance ^ distance[-1].replicate(width + 1))[:width]
        total = Signal(width + bits_for(p.evictor.slots))
        # Importances at the centre or above, less those below.
        balance = Signal(signed(bits_for(p.evictor.slots) + 1))
        m.d.sync += [
            total.eq(Mux(ended, 0, total) + Mux(counts, folded, 0)),
            balance.eq(Mux(ended, 0, balance) + Mux(above, 1, Mux(counts, -1, 0))),
        ]

        # Bits of the mean distance: those of the sum, less those of the largest count.
        bits, spread = Signal(range(width + 2)), Signal(range(width + 2))
        # The last assignment has priority: that of the highest bit that is set.
        for bit in range(slot_bits, len(total)):
            with m.If(total[bit]):
                m.d.comb += bits.eq(bit + 1 - slot_bits)
        # The next search may start in the cycle after the end.
        kept = Signal.like(balance)
        m.d.sync += [spread.eq(bits), kept.eq(balance)]
        centre = delay_line(m, state.centre, 3, name="centre")[3]
        moved = Signal(signed(width + 2))
        largest = (1 << width - 1) - 1
        m.d.comb += moved.eq(centre + ((kept << spread) >> (slot_bits + 1)))
        learned = Signal(self.state_layout)
        m.d.comb += [
            learned.centre.eq(
                Mux(moved > largest, largest, Mux(moved < ~largest, ~largest, moved))
            ),
            learned.shift.eq(Mux(spread > p.score_bits, spread - p.score_bits, 0)),
        ]
        return learned
