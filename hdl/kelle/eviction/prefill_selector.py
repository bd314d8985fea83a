"""Kelle's prefill selection: which tokens of a text a cache of N' slots a head begins with.

Section 4.1. Each head keeps the sinks, the recent window, and the most important of the others;
what most heads keep is recomputed from its input vector.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import prefill_layout
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.prefill_sums import PrefillSums
from hdl.kelle.eviction.threshold_search import ThresholdSearch
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class State(enum.Enum, shape=2):
    """What the selector does with a head, and at last with the layer."""

    SUM = 0
    SEARCH = 1
    WALK = 2
    EMIT = 3


class PrefillSelector(Unit):
    """Sum the scores of a prefill, select, and give the eviction controller what is kept.

    The heads of a layer follow each other, all with the same text. The scores of a head come in
    slices, what one query gives the tokens of one tile, in any order: all queries of a tile, as an
    array with stationary keys computes them, all tiles of a query, or anything between. Several
    query heads that share a key are several slices. A text within the budget is kept as a whole.

    A token is popular if more than `popular_heads` heads keep it and it is not in the recent
    window; the first `prefilled_vectors` popular tokens of the text are marked as recomputed.
    After the last head everything that is kept leaves by `prefill`, head by head, by position; a
    head's n-th token is for the slot n of an empty table.

    **Latency** of a head of T tokens, between its last slice and the next head's first: 1 cycle to
    write, ``score_width * (tiles + 3)`` for the search over the text's tiles, if the text exceeds
    the budget, and T + 3 to walk over the text; after the last head 2 to the first token.
    **Throughput** one slice a cycle, also of the same tile as the one before; one token that
    leaves a cycle.

    **Numerics** importances as `SystolicEvictor`'s; a sum that leaves the range stays at its end,
    also where the evictor would halve. Among equals the earlier token is kept. Exact otherwise.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions.

    Members
    -------
    scores : In(stream)
        `tile` and `query` that the `scores` are of; scores of tokens behind the query are ignored.
        `load`: the tile's importances start from zero. `last`: the head is complete; its query is
        the text's last.
    prefill : Out(stream)
        As in `EvictionController`.

    Raises
    ------
    ValueError
        By `PrefillSelectorParameters`.
    """

    def __init__(self, *, parameters: PrefillSelectorParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(p.scores_layout)),
                "prefill": Out(stream.Signature(prefill_layout(p.eviction))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Go through the states for each head; emit after the last one."""
        m = Module()
        p, eviction = self.parameters, self.parameters.eviction
        m.submodules.sums = self.sums = PrefillSums(parameters=p)
        m.submodules.search = self.search = ThresholdSearch(parameters=p)
        m.submodules.kept = self.kept = Memory(
            depth=eviction.heads * eviction.evictor.slots, width=p.kept_layout.size
        )
        self.count_bits = bits_for(eviction.heads)
        # While heads are counted a token has its count here, afterwards its mark.
        m.submodules.marks = self.marks = Memory(
            depth=p.context, width=max(self.count_bits, p.mark_layout.size)
        )
        self.state = Signal(State)
        self.head = Signal(eviction.head_bits)
        self.last_head = Signal()
        self.walked, self.emitted = Signal(), Signal()
        # The whole text fits.
        self.whole = Signal()
        m.d.comb += [
            self.last_head.eq(self.head == eviction.heads - 1),
            self.whole.eq(self.sums.text_last < eviction.evictor.slots),
        ]
        self._sequence(m)
        self._walk(m)
        self._emit(m)
        return m

    def _sequence(self, m: Module) -> None:
        """Let each part have its turn with the sums."""
        sums, search, state = self.sums, self.search, self.state
        connect_streams(m, self.scores, sums.scores)
        m.d.comb += [
            sums.open.eq(state == State.SUM),
            search.start.eq(sums.complete & ~self.whole),
            search.text_last.eq(sums.text_last),
            search.word.eq(sums.word),
        ]
        with m.Switch(state):
            with m.Case(State.SUM):
                with m.If(sums.complete):
                    m.d.sync += state.eq(Mux(self.whole, State.WALK, State.SEARCH))
            with m.Case(State.SEARCH):
                with m.If(search.done):
                    m.d.sync += state.eq(State.WALK)
            with m.Case(State.WALK):
                with m.If(self.walked):
                    m.d.sync += [
                        state.eq(Mux(self.last_head, State.EMIT, State.SUM)),
                        self.head.eq(Mux(self.last_head, 0, self.head + 1)),
                    ]
            with m.Case(State.EMIT):
                with m.If(self.emitted):
                    m.d.sync += state.eq(State.SUM)

    def _walk(self, m: Module) -> None:
        """Pass all tokens: keep some, and count how many heads keep each."""
        p, eviction, sums = self.parameters, self.parameters.eviction, self.sums
        row_bits = eviction.evictor.row_bits
        importance = p.word_layout.elem_shape
        ranks = 4
        position = [
            Signal(p.place_bits, name=f"position_{i}", reset_less=i > 0) for i in range(ranks)
        ]
        valid = [Signal(name=f"valid_{i}") for i in range(ranks)]
        final = [Signal(name=f"final_{i}") for i in range(ranks)]
        rest = Signal()
        m.d.comb += [
            valid[0].eq((self.state == State.WALK) & ~rest),
            final[0].eq(valid[0] & (position[0] == sums.text_last)),
            sums.read_enable.eq(self.search.read_enable | valid[0]),
            sums.read_address.eq(Mux(valid[0], position[0][row_bits:], self.search.read_address)),
            self.walked.eq(final[-1]),
        ]
        for i in range(1, ranks):
            m.d.sync += [
                position[i].eq(position[i - 1]),
                valid[i].eq(valid[i - 1]),
                final[i].eq(final[i - 1]),
            ]
        with m.If(valid[0]):
            m.d.sync += [position[0].eq(Mux(final[0], 0, position[0] + 1)), rest.eq(final[0])]
        with m.If(self.walked):
            m.d.sync += rest.eq(0)

        # One token of the tile; then whether it is kept; then who keeps it as well.
        element = [Signal(importance, name=f"element_{i}", reset_less=True) for i in (2, 3)]
        lanes = Array(sums.word[lane] for lane in range(p.rows))
        ties = Signal.like(self.search.ties, reset_less=True)
        always, better, equal, keeps = Signal(), Signal(), Signal(), Signal()
        recent = Signal(reset_less=True)
        window = position[2] + eviction.window > sums.text_last
        keep = Signal(reset_less=True)
        m.d.comb += [
            always.eq(self.whole | eviction.is_sink(position[2]) | window),
            better.eq(element[0] > self.search.threshold),
            equal.eq((element[0] == self.search.threshold) & ~always & valid[2]),
            keeps.eq(always | better | (equal & (ties != 0))),
        ]
        m.d.sync += [
            element[0].eq(lanes[position[1][:row_bits]]),
            element[1].eq(element[0]),
            keep.eq(keeps),
            recent.eq(window),
        ]
        with m.If(valid[0] & (position[0] == 0)):
            m.d.sync += ties.eq(self.search.ties)
        with m.Elif(equal & (ties != 0)):
            m.d.sync += ties.eq(ties - 1)

        kept, marks = self.kept, self.marks
        slot = Signal(range(eviction.evictor.slots + 1))
        stored = Signal(p.kept_layout)
        count = Signal(self.count_bits)
        used = Signal(bits_for(eviction.prefilled_vectors))
        mark = Signal(p.mark_layout)
        m.d.comb += [
            stored.position.eq(position[3]),
            stored.importance.eq(element[1]),
            kept.write_enable.eq(valid[3] & keep),
            kept.write_address.eq(self.head * eviction.evictor.slots + slot),
            kept.write_data.eq(stored),
            count.eq(Mux(self.head == 0, 0, marks.read_data[: self.count_bits]) + keep),
            mark.recomputed.eq(
                eviction.is_popular(count) & ~recent & (used != eviction.prefilled_vectors)
            ),
            mark.vector.eq(used),
            marks.write_enable.eq(valid[3]),
            marks.write_address.eq(position[3]),
            marks.write_data.eq(Mux(self.last_head, mark.as_value(), count)),
        ]
        self.count_read = valid[2], position[2]
        with m.If(kept.write_enable):
            m.d.sync += slot.eq(slot + 1)
        with m.If(valid[3] & self.last_head & mark.recomputed):
            m.d.sync += used.eq(used + 1)
        with m.If(self.walked):
            m.d.sync += [slot.eq(0), used.eq(0)]

    def _emit(self, m: Module) -> None:
        """Read what is kept, then its mark; both ranks wait for the controller together."""
        p, eviction, kept, marks = self.parameters, self.parameters.eviction, self.kept, self.marks
        slots = eviction.evictor.slots
        emits, moves, reads = Signal(), Signal(), Signal()
        head = Signal(eviction.head_bits)
        slot = Signal(range(slots))
        last_slot, last_head = Signal(), Signal()
        end, found = Signal(), Signal()
        found_head = Signal(eviction.head_bits, reset_less=True)
        stored = Signal(p.kept_layout)
        goes = Signal(prefill_layout(eviction), reset_less=True)
        m.d.comb += [
            emits.eq(self.state == State.EMIT),
            moves.eq(emits & (~self.prefill.valid | self.prefill.ready)),
            reads.eq(moves & ~end),
            last_slot.eq(slot == Mux(self.whole, self.sums.text_last, slots - 1)),
            last_head.eq(head == eviction.heads - 1),
            kept.read_enable.eq(reads),
            kept.read_address.eq(head * slots + slot),
            stored.eq(data.View(p.kept_layout, kept.read_data)),
        ]
        counts, count_position = self.count_read
        mark = data.View(p.mark_layout, marks.read_data[: p.mark_layout.size])
        m.d.comb += [
            marks.read_enable.eq(counts | moves),
            marks.read_address.eq(Mux(emits, stored.position, count_position)),
            self.prefill.payload.eq(goes),
            self.prefill.payload.token.recomputed.eq(mark.recomputed),
            self.prefill.payload.token.vector.eq(mark.vector),
            self.emitted.eq(emits & end & ~found & ~self.prefill.valid),
        ]
        with m.If(moves):
            m.d.sync += [
                found.eq(~end),
                found_head.eq(head),
                self.prefill.valid.eq(found),
                goes.head.eq(found_head),
                goes.token.position.eq(stored.position),
                goes.importance.eq(stored.importance),
            ]
        with m.If(reads):
            m.d.sync += slot.eq(Mux(last_slot, 0, slot + 1))
            with m.If(last_slot):
                m.d.sync += [head.eq(Mux(last_head, 0, head + 1)), end.eq(last_head)]
        with m.If(self.emitted):
            m.d.sync += end.eq(0)
