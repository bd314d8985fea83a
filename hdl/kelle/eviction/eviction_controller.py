"""Kelle's eviction controller, which assigns slots to tokens and selects recomputed tokens.

Sections 4.1, 5.1 and 5.3. The controller supplies the systolic evictor with the state of the slots
and takes its victims. It assigns a slot to the arriving token in every head, and selects the
popular tokens, whose input vectors are stored instead of their keys and values.
"""

from typing import Any

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.decode_step import (
    Choice,
    State,
    Step,
    choose_slot,
    take_position,
    window_registers,
)
from hdl.kelle.eviction.eviction_parameters import (
    EvictionParameters,
    placement_layout,
    prefill_layout,
    value_layout,
    vector_layout,
    wavefront_layout,
)
from hdl.kelle.eviction.importance_judge import ImportanceJudge
from hdl.kelle.eviction.layer_vectors import LayerVectors
from hdl.kelle.eviction.slot_table import SlotTable
from hdl.kelle.eviction.systolic_evictor import SystolicEvictor
from hdl.kelle.eviction.wavefront_issue import WavefrontIssue
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

WAITING_VALUES = 4
"""Heads whose values can wait until the attention has used the victim's value."""


class EvictionController(Unit):
    """Run the attention-based eviction and recomputation policy (AERP) for one or several layers.

    In a decode step, `tokens` takes the arriving token's position; the heads follow in ascending
    order. For each head, the scheduler sends the wavefronts of the head's search to `wavefronts`,
    which wait for the token, and the scores of lane i to `scores_in[i]`, i cycles after the
    wavefront's `started`. `placements` then outputs the victim's slot, or the first free one; the
    key may be written immediately. `values` outputs the slot for the value, to be transferred when
    the attention no longer needs the victim's value. Wavefronts with `fresh` and `alone` carry the
    arriving token's own score. With `evict_before`, the placements of all heads precede the scores
    and use the victims of the previous step; the arriving token's slot is then marked `fresh` in
    the wavefront of its tile. A search before the first step finds the first victims.

    The leaving token, which has just left the recent window, is popular if it is important to more
    than `popular_above` heads. It is important to a head if the head does not evict it in this
    step, and if its coarse score is at least the mean of all tokens that the head may evict. A
    popular token is recomputed from its input vector until the last head has evicted it. The
    decision is made once.

    **Latency** the evictor starts a wavefront 1 cycle after the transfer; a placement is valid 3
    cycles after the evictor's victim. **Throughput** one wavefront per cycle, but wavefronts with
    `compare` at least `rows` cycles apart.

    **Numerics** as `SystolicEvictor`; the exported scores are those of `HeadScores`.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer; changes only while `tokens` is ready.
    prefill : In(stream)
        Tokens that the prefill keeps: head, position, importance, and whether they are recomputed.
        The last token of a head is the youngest.
    tokens : In(stream)
        Position of the arriving token; ready when the previous step is complete.
    wavefronts : In(stream)
        `head`, `tile`, and the evictor's `load`, `compare`, `last`; `fresh`: row `row` holds the
        arriving token, which starts from zero; `alone`: no other row takes part.
    started : Out(1)
        A wavefront is at row 0 of the evictor: lane 0 of its scores is sampled in this cycle.
    scores_in : In(ArrayLayout(score, rows))
        Scores from the array.
    placements : Out(stream)
        Head and slot of the arriving token, and the token that it evicts, if any.
    values : Out(stream)
        Head and slot again, in the same order.
    vector_stores : Out(stream)
        Position of a token that became popular, and the number of its input vector.
    vectors : Out(ArrayLayout(vector, layers * vectors))
        For each stored input vector, the position of its token, and whether it is in use.
    lookup_request : In(stream)
        Slots to look up: index of the head among those of all layers (upper bits), tile (lower
        bits).
    lookup_response : Out(ArrayLayout(token, rows))
        Records of these slots, one cycle later.
    filled : Out(ArrayLayout(count, layers * kv_heads))
        Slots in use per head.
    no_victim : Out(1)
        A full head had no candidate to evict. This happens only if positions are not those of a
        text, which increase and are below ``2**position_bits``. The token took the head's last
        slot. The bit is held until reset.
    scores : Out(stream)
        Score updates for the refresh controllers; while it is not ready, neither wavefronts nor
        prefilled tokens are accepted.

    Raises
    ------
    ValueError
        If `EvictionParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        rows = p.evictor.rows
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "prefill": In(stream.Signature(prefill_layout(p))),
                "tokens": In(stream.Signature(p.position_bits)),
                "wavefronts": In(stream.Signature(wavefront_layout(p))),
                "started": Out(1),
                "scores_in": In(data.ArrayLayout(p.evictor.input_shape, rows)),
                "placements": Out(stream.Signature(placement_layout(p))),
                "values": Out(stream.Signature(value_layout(p))),
                "vector_stores": Out(stream.Signature(p.promoted_layout)),
                "vectors": Out(data.ArrayLayout(vector_layout(p), max(p.layers * p.vectors, 1))),
                "lookup_request": In(stream.Signature(p.address_bits)),
                "lookup_response": Out(data.ArrayLayout(p.token_layout, rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.evictor.slots), p.cached_heads)),
                "no_victim": Out(1),
                "scores": Out(stream.Signature(p.score_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect slot table and evictor, and sequence the placements."""
        m = Module()
        p = self.parameters
        m.submodules.table = table = SlotTable(parameters=p)
        m.submodules.evictor = evictor = SystolicEvictor(parameters=p.evictor)
        m.submodules.issue = issue = WavefrontIssue(parameters=p)
        step = Step(
            now=Signal(p.position_bits),
            window=window_registers(p),
            stepping=Signal(),
            state=Signal(State),
            head=Signal(p.head_bits),
            cached=Signal(range(max(p.cached_heads, 2)), reset_less=True),
            slot=Signal(p.evictor.index_width, reset_less=True),
            evicts=Signal(reset_less=True),
            last_head=Signal(),
        )
        m.d.comb += step.last_head.eq(step.head == p.kv_heads - 1)
        # Without vectors no token is recomputed, and the unit for them is omitted.
        vectors = LayerVectors(parameters=p) if p.vectors else None
        vectors_idle = Const(1) if vectors is None else vectors.idle

        self._connect_wavefronts(m, step, issue, table, evictor)
        # A search for the next victims still needs the window of the previous step.
        searched = issue.idle if p.evict_before else Const(1)
        m.d.comb += self.tokens.ready.eq(~step.stepping & vectors_idle & searched)
        prefilled = self._take_prefill(m, step, issue)
        take_position(m, p, step, self.layer, self.tokens, self.prefill, prefilled)
        arrives = self._write_table(m, step, table, prefilled, vectors_idle)
        choice = choose_slot(m, p, step, issue, evictor)
        evicted = self._look_up(m, step, table)
        self._sequence(m, step, choice, arrives, evicted)
        if vectors is not None:
            m.submodules.recomputed_vectors = vectors
            m.submodules.judge = judge = ImportanceJudge(parameters=p)
            m.d.comb += [
                judge.standing.eq(table.standing),
                judge.score.eq(table.score.score),
                judge.ends.eq(table.searched),
                judge.head.eq(table.searched_head),
                vectors.important.eq(judge.important),
            ]
            self._connect_vectors(m, step, vectors, table, prefilled, arrives, evicted)
        return m

    def _connect_wavefronts(
        self,
        m: Module,
        step: Step,
        issue: WavefrontIssue,
        table: SlotTable,
        evictor: SystolicEvictor,
    ) -> None:
        """Connect wavefronts to table and evictor in parallel, and the new importances back."""
        p = self.parameters
        connect_streams(m, self.wavefronts, issue.wavefronts)
        connect_streams(m, issue.evictor_wavefronts, evictor.wavefronts)
        m.d.comb += [
            table.oldest.eq(step.window.oldest),
            table.leaving.eq(step.window.leaving),
            issue.stepping.eq(step.stepping),
            issue.enable.eq(self.scores.ready),
            issue.filled.eq(self.filled),
            issue.layer.eq(self.layer),
            self.started.eq(issue.strobe),
            table.accept.eq(issue.accept),
            table.accept_address.eq(issue.accept_address),
            table.strobe.eq(issue.strobe),
            table.wavefront.eq(issue.table_wavefront),
            table.cached_head.eq(issue.cached_head),
            table.updates.eq(evictor.updates),
            self.scores.valid.eq(table.score_valid),
            self.scores.payload.eq(table.score),
        ]
        # Row i's slot is read so that its state is valid with lane i's score.
        for i in range(p.evictor.rows):
            m.d.comb += [
                evictor.lanes[i].score.eq(self.scores_in[i]),
                evictor.lanes[i].importance.eq(table.states[i].importance),
                evictor.lanes[i].valid.eq(table.states[i].valid),
                evictor.lanes[i].protect.eq(table.states[i].protect),
            ]

    def _filled(self, head: Value) -> Any:
        """Return the count of slots in use of a head, indexed among the heads of all layers."""
        return Array(self.filled[h] for h in range(self.parameters.cached_heads))[head]

    def _take_prefill(self, m: Module, step: Step, issue: WavefrontIssue) -> Signal:
        """Accept a prefill's tokens while the table is idle; return whether one is accepted."""
        p = self.parameters
        kept, prefilled = self.prefill.payload, Signal()
        fill = self._filled(p.cached_head(self.layer, kept.head))
        idle = issue.idle & ~step.stepping & self.tokens.ready & self.scores.ready
        m.d.comb += [
            self.prefill.ready.eq(idle),
            prefilled.eq(self.prefill.valid & self.prefill.ready),
        ]
        with m.If(prefilled):
            m.d.sync += fill.eq(fill + 1)
        return prefilled

    def _write_table(
        self, m: Module, step: Step, table: SlotTable, prefilled: Signal, vectors_idle: Value
    ) -> Signal:
        """Write an arriving token into its slot, or a prefilled one into the next free one.

        Returns
        -------
        Signal
            Whether the arriving token is written in this cycle.
        """
        p = self.parameters
        row_bits = p.evictor.row_bits
        arrives = Signal()
        # Both share one port: prefilled tokens are accepted between steps, without wavefronts.
        kept, slot = self.prefill.payload, step.slot
        marked = table.marked.bit_select(slot[:row_bits], 1)
        kept_head = p.cached_head(self.layer, kept.head)
        fill = self._filled(kept_head)
        address = step.cached * p.tiles + slot[row_bits:]
        prefill_address = kept_head * p.tiles + fill[row_bits:]
        m.d.comb += [
            # A wavefront that marks a promoted token has priority at the row's write port.
            arrives.eq((step.state == State.PLACE) & vectors_idle & ~marked),
            table.place.eq(prefilled | arrives),
            table.place_row.eq(Mux(prefilled, fill[:row_bits], slot[:row_bits])),
            table.placing.prefill.eq(prefilled),
            table.placing.importance.eq(kept.importance),
            table.placing.address.eq(Mux(prefilled, prefill_address, address)),
            table.placing.token.position.eq(step.now),
        ]
        with m.If(prefilled):
            m.d.comb += table.placing.token.eq(kept.token)
        return arrives

    def _look_up(self, m: Module, step: Step, table: SlotTable) -> data.View:
        """Share the lookups of the slot table: the current head's have priority.

        Returns
        -------
        View
            Record of the current head's slot, from the cycle after `LOOKUP` to its placement.
        """
        p = self.parameters
        row_bits = p.evictor.row_bits
        address = step.cached * p.tiles + step.slot[row_bits:]
        own = step.state == State.LOOKUP
        # The record must be held until the token is placed, which may have to wait.
        others = ~own & (step.state != State.PLACE)
        evicted = Signal(p.token_layout)
        tokens = Array(table.tokens[i] for i in range(p.evictor.rows))
        m.d.comb += [
            evicted.eq(tokens[step.slot[:row_bits]]),
            self.lookup_request.ready.eq(others),
            self.lookup_response.eq(table.tokens),
            table.lookup.eq((self.lookup_request.valid & others) | own),
            table.lookup_address.eq(Mux(own, address, self.lookup_request.payload)),
        ]
        return evicted

    def _sequence(
        self, m: Module, step: Step, choice: Choice, arrives: Signal, evicted: data.View
    ) -> None:
        """Assign a slot to the arriving token, head by head."""
        p = self.parameters
        state, head = step.state, step.head
        # Slots fill in order and are never freed, so a count identifies the slots in use.
        count = self._filled(step.cached)
        full = Signal()
        offered = Signal(placement_layout(p), reset_less=True)
        m.d.comb += full.eq(count == p.evictor.slots)
        self._offer(m, state, offered)

        with m.Switch(state):
            # The head's search is complete: take the victim's slot, or the first free one.
            with m.Case(State.IDLE):
                with m.If(step.stepping & choice.valid):
                    m.d.sync += [
                        step.slot.eq(Mux(full, choice.slot, count)),
                        step.evicts.eq(full),
                        state.eq(State.LOOKUP),
                    ]
                    # Illegal positions may protect all tokens: any slot will do, so the last one.
                    with m.If(full & ~choice.found):
                        m.d.sync += [
                            step.slot.eq(p.evictor.slots - 1),
                            self.no_victim.eq(1),
                        ]
            # The slot's record is valid one cycle later.
            with m.Case(State.LOOKUP):
                m.d.sync += state.eq(State.PLACE)
            with m.Case(State.PLACE):
                with m.If(arrives):
                    m.d.sync += [
                        offered.head.eq(head),
                        offered.slot.eq(step.slot),
                        offered.evicts.eq(step.evicts),
                        offered.evicted.eq(evicted),
                        state.eq(State.OFFER),
                    ]
                    with m.If(~step.evicts):
                        m.d.sync += count.eq(count + 1)
            # The next head begins when the placement is transferred.
            with m.Case(State.OFFER):
                with m.If(self.placements.valid & self.placements.ready):
                    m.d.sync += [
                        state.eq(State.IDLE),
                        head.eq(Mux(step.last_head, 0, head + 1)),
                        step.cached.eq(step.cached + 1),
                    ]
                    with m.If(step.last_head):
                        m.d.sync += step.stepping.eq(0)

    def _offer(self, m: Module, state: enum.EnumView, offered: data.View) -> None:
        """Offer a placement for the key, and queue it for the value, which is written later."""
        p = self.parameters
        m.submodules.values = values = Fifo(shape=value_layout(p), depth=WAITING_VALUES)
        offers = state == State.OFFER
        # Each waits for the other's ready, so that both transfer in the same cycle.
        m.d.comb += [
            self.placements.payload.eq(offered),
            self.placements.valid.eq(offers & values.source.ready),
            values.source.payload.head.eq(offered.head),
            values.source.payload.slot.eq(offered.slot),
            values.source.valid.eq(offers & self.placements.ready),
        ]
        connect_streams(m, values.sink, self.values)

    def _connect_vectors(
        self,
        m: Module,
        step: Step,
        vectors: LayerVectors,
        table: SlotTable,
        prefilled: Signal,
        arrives: Signal,
        evicted: data.View,
    ) -> None:
        """Connect every head's outcome and every prefilled token to the stored vectors."""
        connect_streams(m, vectors.vector_stores, self.vector_stores)
        m.d.comb += [
            vectors.layer.eq(self.layer),
            vectors.now.eq(step.now),
            vectors.outcome_valid.eq(arrives),
            vectors.outcome.head.eq(step.head),
            vectors.outcome.last.eq(step.last_head),
            vectors.outcome.evicts.eq(step.evicts),
            vectors.outcome.evicted.eq(evicted),
            vectors.prefilled_valid.eq(prefilled),
            vectors.prefilled.head.eq(self.prefill.payload.head),
            vectors.prefilled.token.eq(self.prefill.payload.token),
            self.vectors.eq(vectors.vectors),
            table.promoted.eq(vectors.promoted),
            vectors.scores.ready.eq(~table.score_valid & self.scores.ready),
        ]
        # Score updates of slots cannot wait; those of vectors use the remaining cycles.
        with m.If(~table.score_valid):
            m.d.comb += [
                self.scores.valid.eq(vectors.scores.valid),
                self.scores.payload.eq(vectors.scores.payload),
            ]
