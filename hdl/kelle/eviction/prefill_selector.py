"""Kelle's prefill selection: the tokens of a text that fill a head's cache of N' slots.

Section 4.1. Each head keeps the sinks, the recent window, and the most important of the other
tokens. Tokens that most heads keep are recomputed from their input vectors.
"""

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Array, Const, Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import prefill_layout
from hdl.kelle.eviction.popular_tokens import PopularTokens
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.prefill_sums import PrefillSums
from hdl.memory.memory import Memory
from hdl.memory.threshold_search import ThresholdSearch
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class State(enum.Enum, shape=2):
    """State of the selector: the first three per head, the last one per layer."""

    SUM = 0
    SEARCH = 1
    WALK = 2
    EMIT = 3


@dataclass(frozen=True)
class Layer:
    """Progress within a layer."""

    state: enum.EnumView
    head: Signal
    last_head: Signal
    whole: Signal  # The text fits into the budget: all tokens are kept.
    walked: Signal  # All tokens of a head have been passed.
    emitted: Signal  # All kept tokens of the layer have been transferred.


@dataclass(frozen=True)
class Stage:
    """A stage of the pipeline that passes over the text's tokens."""

    position: Signal
    valid: Signal
    final: Signal  # The text's last token.


@dataclass(frozen=True)
class Choice:
    """Registers of stage 3: the decision on its token."""

    keep: Signal
    recent: Signal
    importance: Signal


class PrefillSelector(Unit):
    """Sum the scores of a prefill, and send the tokens to keep to the eviction controller.

    The heads of a layer follow each other, all with the same text. A head's scores arrive in
    slices: the scores of one query for the tokens of one tile. Their order is arbitrary: all
    queries of a tile, as an array with stationary keys computes them, or all tiles of a query, or a
    mixture. Query heads that share a key have a slice each. A text within the budget is kept as a
    whole.

    A token is popular if more than `popular_heads` heads keep it and it is not in the recent
    window. The `prefilled_vectors` best popular tokens are marked as recomputed: ranked by the
    number of heads that keep them, then by the sum of their importances in these heads. After the
    last head, `prefill` outputs all kept tokens, head by head, in the order of their positions; the
    n-th token of a head is for slot n of an empty table.

    **Latency** `score_width` passes over the text's tiles and one over its tokens. Of a head of T
    tokens, between its last slice and the next head's first slice, it is 1 cycle to
    write, ``score_width * (tiles + 3)`` to search the threshold over the text's tiles if the text
    exceeds the budget, and T + 3 to pass over the text; after the last head 2 to the first token.
    **Throughput** one slice per cycle, also of the same tile as the previous slice; one token
    output per cycle.

    **Numerics** importances as in `SystolicEvictor`; sums saturate, also where the evictor would
    halve. Ties resolve to the earlier token. Exact otherwise.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions of the selector.

    Members
    -------
    scores : In(stream)
        `tile` and `query` of the `scores`; scores of tokens after the query are ignored. `load`:
        the tile's importances start from zero. `last`: the head is complete; its query is the last
        of the text.
    prefill : Out(stream)
        As in `EvictionController`.
    busy : Out(1)
        1 from a layer's first scores until its last token has been transferred.

    Raises
    ------
    ValueError
        If `PrefillSelectorParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: PrefillSelectorParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(p.scores_layout)),
                "prefill": Out(stream.Signature(prefill_layout(p.eviction))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sum, search and pass over the text for each head; output the tokens after the last."""
        m = Module()
        p, eviction = self.parameters, self.parameters.eviction
        m.submodules.sums = sums = PrefillSums(parameters=p)
        search = self._threshold(m, sums)
        kept_tokens = eviction.kv_heads * eviction.evictor.slots
        m.submodules.kept = kept = Memory(depth=kept_tokens, width=p.kept_layout.size)
        m.submodules.popular = popular = PopularTokens(parameters=p)

        layer = Layer(
            state=Signal(State),
            head=Signal(eviction.head_bits),
            last_head=Signal(),
            whole=Signal(),
            walked=Signal(),
            emitted=Signal(),
        )
        m.d.comb += [
            layer.last_head.eq(layer.head == eviction.kv_heads - 1),
            layer.whole.eq(sums.text_last < eviction.evictor.slots),
            search.start.eq(sums.complete & ~layer.whole),
        ]
        stages = self._walk(m, layer, sums, search)
        choice = self._choose(m, layer, stages, sums, search)
        self._keep(m, layer, stages[3], choice, kept)
        self._rank(m, layer, stages, choice, popular)
        self._emit(m, layer, sums, kept, popular)
        m.d.comb += layer.walked.eq(stages[3].final)
        self._sequence(m, layer, sums, search)
        return m

    def _threshold(self, m: Module, sums: PrefillSums) -> ThresholdSearch:
        """Return the search for the threshold among the candidates: neither sinks nor window."""
        p, eviction = self.parameters, self.parameters.eviction
        width = eviction.evictor.score_width
        m.submodules.search = search = ThresholdSearch(
            shape=signed(width), lanes=p.rows, words=p.tiles, most=p.places
        )
        tile = search.read_address
        inside = p.up_to((sums.text_last - eviction.window)[: p.place_bits], tile)
        # Sinks and window are always kept.
        if eviction.sinks:
            inside &= ~p.up_to(Const(eviction.sinks - 1, p.place_bits), tile)
        m.d.comb += [
            search.wanted.eq(p.places),
            search.last_word.eq(sums.text_last[eviction.evictor.row_bits :]),
            search.highest.eq(1 << width - 1),
            search.candidates.eq(inside),
            search.word.eq(sums.word),
        ]
        return search

    def _sequence(
        self, m: Module, layer: Layer, sums: PrefillSums, search: ThresholdSearch
    ) -> None:
        """Sequence the states, each of which uses the memory of sums exclusively."""
        state, head = layer.state, layer.head
        connect_streams(m, self.scores, sums.scores)
        m.d.comb += sums.open.eq(state == State.SUM)
        with m.If(self.scores.valid & self.scores.ready):
            m.d.sync += self.busy.eq(1)
        with m.Switch(state):
            # A text within the budget has no threshold.
            with m.Case(State.SUM):
                with m.If(sums.complete):
                    m.d.sync += state.eq(Mux(layer.whole, State.WALK, State.SEARCH))
            # Each pass over the tiles determines one bit of the threshold.
            with m.Case(State.SEARCH):
                with m.If(search.done):
                    m.d.sync += state.eq(State.WALK)
            # Popularity is determined when the last head has been passed.
            with m.Case(State.WALK):
                with m.If(layer.walked):
                    m.d.sync += [
                        state.eq(Mux(layer.last_head, State.EMIT, State.SUM)),
                        head.eq(Mux(layer.last_head, 0, head + 1)),
                    ]
            # The tokens of all heads are output together.
            with m.Case(State.EMIT):
                with m.If(layer.emitted):
                    m.d.sync += [state.eq(State.SUM), self.busy.eq(0)]

    def _walk(
        self, m: Module, layer: Layer, sums: PrefillSums, search: ThresholdSearch
    ) -> list[Stage]:
        """Pass all tokens, one token per cycle, and return the stages of the pipeline.

        Stage 0 reads the tile's importances, 1 selects the token's, 2 decides, 3 writes.
        """
        p = self.parameters
        row_bits = p.eviction.evictor.row_bits
        stages = [
            Stage(
                position=Signal(p.place_bits, name=f"position_{i}", reset_less=i > 0),
                valid=Signal(name=f"valid_{i}"),
                final=Signal(name=f"final_{i}"),
            )
            for i in range(4)
        ]
        first = stages[0]
        # After the last token, stage 0 is idle until the pipeline is empty.
        rest = Signal()
        m.d.comb += [
            first.valid.eq((layer.state == State.WALK) & ~rest),
            first.final.eq(first.valid & (first.position == sums.text_last)),
            sums.read_enable.eq(search.read_enable | first.valid),
            sums.read_address.eq(Mux(first.valid, first.position[row_bits:], search.read_address)),
        ]
        for before, stage in pairwise(stages):
            m.d.sync += [
                stage.position.eq(before.position),
                stage.valid.eq(before.valid),
                stage.final.eq(before.final),
            ]
        with m.If(first.valid):
            m.d.sync += [
                first.position.eq(Mux(first.final, 0, first.position + 1)),
                rest.eq(first.final),
            ]
        with m.If(stages[-1].final):
            m.d.sync += rest.eq(0)
        return stages

    def _choose(
        self,
        m: Module,
        layer: Layer,
        stages: list[Stage],
        sums: PrefillSums,
        search: ThresholdSearch,
    ) -> Choice:
        """Decide in stage 2 whether the token is kept: always, or because of its importance."""
        p, eviction = self.parameters, self.parameters.eviction
        first, chooses, decides = stages[0], stages[1], stages[2]
        lanes = Array(sums.word[lane] for lane in range(p.rows))
        importance = Signal(p.word_layout.elem_shape, reset_less=True)
        choice = Choice(
            keep=Signal(name="keep", reset_less=True),
            recent=Signal(name="recent", reset_less=True),
            importance=Signal(p.word_layout.elem_shape, name="chosen", reset_less=True),
        )
        # Ties resolve to the earlier token, for as many tokens as the search has counted.
        ties = Signal.like(search.ties, reset_less=True)
        always, better, equal = Signal(), Signal(), Signal()
        recent = decides.position + eviction.window > sums.text_last
        m.d.comb += [
            always.eq(layer.whole | eviction.is_sink(decides.position) | recent),
            better.eq(importance > search.threshold),
            equal.eq((importance == search.threshold) & ~always & decides.valid),
        ]
        # The decisions of stage 2 are registered for stage 3.
        m.d.sync += [
            importance.eq(lanes[chooses.position[: eviction.evictor.row_bits]]),
            choice.importance.eq(importance),
            choice.keep.eq(always | better | (equal & (ties != 0))),
            choice.recent.eq(recent),
        ]
        with m.If(first.valid & (first.position == 0)):
            m.d.sync += ties.eq(search.ties)
        with m.Elif(equal & (ties != 0)):
            m.d.sync += ties.eq(ties - 1)
        return choice

    def _keep(self, m: Module, layer: Layer, stage: Stage, choice: Choice, kept: Memory) -> None:
        """Append a kept token to the others of its head."""
        p, slots = self.parameters, self.parameters.eviction.evictor.slots
        slot = Signal(range(slots + 1))
        stored = Signal(p.kept_layout)
        m.d.comb += [
            stored.position.eq(stage.position),
            stored.importance.eq(choice.importance),
            kept.write_enable.eq(stage.valid & choice.keep),
            kept.write_address.eq(layer.head * slots + slot),
            kept.write_data.eq(stored),
        ]
        with m.If(kept.write_enable):
            m.d.sync += slot.eq(slot + 1)
        with m.If(stage.final):
            m.d.sync += slot.eq(0)

    def _rank(
        self,
        m: Module,
        layer: Layer,
        stages: list[Stage],
        choice: Choice,
        popular: PopularTokens,
    ) -> None:
        """Accumulate a token's rank over the heads; the last head completes it."""
        p, eviction = self.parameters, self.parameters.eviction
        m.submodules.ranks = ranks = Memory(depth=p.prefill_tokens, width=p.rank_layout.size)
        reads, writes = stages[2], stages[3]
        rank, earlier = Signal(p.rank_layout), Signal(p.rank_layout)
        given = Mux(choice.keep, choice.importance, 0)
        m.d.comb += [
            ranks.read_enable.eq(reads.valid),
            ranks.read_address.eq(reads.position),
            # The first head ignores the ranks of the previous layer.
            earlier.eq(Mux(layer.head == 0, 0, ranks.read_data)),
            rank.heads.eq(earlier.heads + choice.keep),
            rank.importance.eq(earlier.importance + given),
            ranks.write_enable.eq(writes.valid),
            ranks.write_address.eq(writes.position),
            ranks.write_data.eq(rank),
        ]
        # Stage 3's rank is offered one cycle later; the first token is output two cycles after the
        # last stage 3.
        complete = Signal(p.rank_layout, reset_less=True)
        m.d.sync += [
            popular.offer.eq(
                writes.valid & layer.last_head & eviction.is_popular(rank.heads) & ~choice.recent
            ),
            popular.offered.eq(writes.position),
            complete.eq(rank),
        ]
        m.d.comb += popular.rank.eq(complete)

    def _emit(
        self,
        m: Module,
        layer: Layer,
        sums: PrefillSums,
        kept: Memory,
        popular: PopularTokens,
    ) -> None:
        """Output the kept tokens, and mark the popular ones.

        Both pipeline stages wait for the controller together.
        """
        p, eviction = self.parameters, self.parameters.eviction
        slots = eviction.evictor.slots
        # `end`: all tokens have been read; `found`: the token read has not yet been offered.
        emits, moves, reads, emitted = Signal(), Signal(), Signal(), layer.emitted
        head = Signal(eviction.head_bits)
        slot = Signal(range(slots))
        last_slot, last_head = Signal(), Signal()
        end, found = Signal(), Signal()
        found_head = Signal(eviction.head_bits, reset_less=True)
        stored = Signal(p.kept_layout)
        leaving = Signal(prefill_layout(eviction), reset_less=True)
        m.d.comb += [
            emits.eq(layer.state == State.EMIT),
            moves.eq(emits & (~self.prefill.valid | self.prefill.ready)),
            reads.eq(moves & ~end),
            last_slot.eq(slot == Mux(layer.whole, sums.text_last, slots - 1)),
            last_head.eq(head == eviction.kv_heads - 1),
            kept.read_enable.eq(reads),
            kept.read_address.eq(head * slots + slot),
            stored.eq(data.View(p.kept_layout, kept.read_data)),
            popular.position.eq(stored.position),
            popular.clear.eq(emitted),
            self.prefill.payload.eq(leaving),
            emitted.eq(emits & end & ~found & ~self.prefill.valid),
        ]
        with m.If(moves):
            m.d.sync += [
                found.eq(~end),
                found_head.eq(head),
                self.prefill.valid.eq(found),
                leaving.head.eq(found_head),
                leaving.token.position.eq(stored.position),
                leaving.token.recomputed.eq(popular.found),
                leaving.token.vector.eq(popular.vector),
                leaving.importance.eq(stored.importance),
            ]
        # A text within the budget fills fewer slots, the same in every head.
        with m.If(reads):
            m.d.sync += slot.eq(Mux(last_slot, 0, slot + 1))
            with m.If(last_slot):
                m.d.sync += [head.eq(Mux(last_head, 0, head + 1)), end.eq(last_head)]
        with m.If(emitted):
            m.d.sync += end.eq(0)
