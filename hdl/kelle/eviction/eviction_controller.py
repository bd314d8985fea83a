"""Kelle's eviction controller, which assigns slots to tokens and selects recomputed tokens.

Sections 4.1, 5.1 and 5.3. The controller supplies the systolic evictor with the state of the slots
and takes its victims. It assigns a slot to the arriving token in every head, and selects the
popular tokens, whose input vectors are stored instead of their keys and values.
"""

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import (
    EvictionParameters,
    placement_layout,
    prefill_layout,
    value_layout,
    vector_layout,
    wavefront_layout,
)
from hdl.kelle.eviction.head_victims import HeadVictims
from hdl.kelle.eviction.importance_judge import ImportanceJudge
from hdl.kelle.eviction.layer_vectors import LayerVectors
from hdl.kelle.eviction.recent_window import RecentWindow
from hdl.kelle.eviction.slot_assigner import SlotAssigner
from hdl.kelle.eviction.slot_table import SlotTable
from hdl.kelle.eviction.systolic_evictor import SystolicEvictor
from hdl.kelle.eviction.wavefront_issue import WavefrontIssue
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class Ready:
    """State of the stored vectors."""

    idle: Value  # They can take another token.
    current: Value  # They are those of the current layer.
    decided: Value  # Whether the leaving token is popular has been decided.


class EvictionController(Unit):
    """Run the attention-based eviction and recomputation policy (AERP) for one or several layers.

    In a decode step, `positions` takes the arriving token's position; the heads follow in ascending
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
    cycles after the evictor's victim; a prefilled token of another head than the one before is
    taken after 2 cycles. **Throughput** one wavefront per cycle, but wavefronts with
    `compare` at least `rows` cycles apart.

    **Numerics** as `SystolicEvictor`; the exported scores are those of `HeadScores`.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer; changes only while `positions` is ready.
    clears : In(stream)
        Number of a layer whose text ends: when `layer` selects it, all of its slots and stored
        vectors become free. The transfer is at the end of this work, which takes a cycle per token
        and head, two per head, and `vector_entries` cycles per stored vector. No search may be in
        flight.
    prefill : In(stream)
        Tokens that the prefill keeps: head, position, importance, and whether they are recomputed.
        The last token of a head is the youngest.
    positions : In(stream)
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
    vector_request : In(stream)
        Layer whose stored input vectors to look up.
    vector_response : Out(ArrayLayout(vector, vectors))
        For each of them, the position of its token, and whether it is in use: valid from the cycle
        after the request until the next request or another `layer`.
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
                "clears": In(stream.Signature(p.layer_bits)),
                "prefill": In(stream.Signature(prefill_layout(p))),
                "positions": In(stream.Signature(p.position_bits)),
                "wavefronts": In(stream.Signature(wavefront_layout(p))),
                "started": Out(1),
                "scores_in": In(data.ArrayLayout(p.evictor.input_shape, rows)),
                "placements": Out(stream.Signature(placement_layout(p))),
                "values": Out(stream.Signature(value_layout(p))),
                "vector_stores": Out(stream.Signature(p.promoted_layout)),
                "vector_request": In(stream.Signature(p.layer_bits)),
                "vector_response": Out(data.ArrayLayout(vector_layout(p), max(p.vectors, 1))),
                "lookup_request": In(stream.Signature(p.address_bits)),
                "lookup_response": Out(data.ArrayLayout(p.token_layout, rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.evictor.slots), p.cached_heads)),
                "no_victim": Out(1),
                "scores": Out(stream.Signature(p.score_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect evictor, slot table and assigner; without vectors no token is recomputed."""
        m = Module()
        p = self.parameters
        m.submodules.table = table = SlotTable(parameters=p)
        m.submodules.evictor = evictor = SystolicEvictor(parameters=p.evictor)
        m.submodules.issue = issue = WavefrontIssue(parameters=p)
        m.submodules.window = window = RecentWindow(parameters=p)
        m.submodules.victims = victims = HeadVictims(parameters=p)
        m.submodules.assigner = assigner = SlotAssigner(parameters=p)

        connect_streams(m, self.wavefronts, issue.wavefronts)
        connect_streams(m, issue.evictor_wavefronts, evictor.wavefronts)
        connect_streams(m, evictor.victims, victims.found)
        connect_streams(m, victims.victims, assigner.victims)
        connect_streams(m, self.clears, assigner.clears)
        connect_streams(m, self.prefill, assigner.prefill)
        connect_streams(m, self.positions, assigner.positions)
        connect_streams(m, self.lookup_request, assigner.lookup_request)
        connect_streams(m, assigner.placements, self.placements)
        connect_streams(m, assigner.values, self.values)
        steps = self.positions.valid & self.positions.ready
        # A register, because the number of a head is derived from the layer's. Nothing begins in
        # the cycle in which it follows.
        layer: Value = self.layer
        follows: Value = Const(1)
        if p.layers > 1:
            layer = Signal(p.layer_bits, name="held_layer")
            follows = layer == self.layer
            m.d.sync += layer.eq(self.layer)
        ready = self._connect_vectors(m, table, window, assigner, layer)
        m.d.comb += [
            issue.stepping.eq(assigner.stepping),
            # With `evict_before`, the search of a step marks the slots of the token that became
            # popular in the same step, so that it waits for this decision.
            issue.enable.eq(self.scores.ready & (ready.decided & follows if p.evict_before else 1)),
            issue.filled.eq(assigner.filled),
            issue.halve.eq(victims.halve),
            issue.layer.eq(layer),
            self.started.eq(issue.strobe),
            # A prefill's last token is the youngest.
            window.moves.eq(steps | assigner.prefilled),
            window.position.eq(
                Mux(
                    self.positions.valid,
                    self.positions.payload,
                    self.prefill.payload.token.position,
                )
            ),
            victims.layer.eq(layer),
            victims.searched.eq(issue.idle),
            victims.head.eq(assigner.cached_head),
            victims.forgets.eq(assigner.forgets),
            assigner.layer.eq(layer),
            assigner.now.eq(window.now),
            assigner.may_load.eq(issue.idle & self.scores.ready),
            assigner.may_place.eq(ready.idle),
            # A search for the next victims still needs the window of the previous step.
            assigner.may_step.eq(
                ready.idle & ready.current & follows & (issue.idle if p.evict_before else 1)
            ),
            self.lookup_response.eq(table.tokens),
            self.filled.eq(assigner.filled),
            self.no_victim.eq(assigner.no_victim),
        ]
        self._connect_table(m, table, window, assigner)
        # The wavefronts pass table and evictor in parallel. Row i's slot is read so that its state
        # is valid with lane i's score.
        m.d.comb += [
            table.accept.eq(issue.accept),
            table.accept_address.eq(issue.accept_address),
            table.strobe.eq(issue.strobe),
            table.wavefront.eq(issue.table_wavefront),
            table.cached_head.eq(issue.cached_head),
            table.updates.eq(evictor.updates),
        ]
        for lane, state, score in zip(evictor.lanes, table.states, self.scores_in, strict=True):
            m.d.comb += [
                lane.score.eq(score),
                lane.importance.eq(state.importance),
                lane.valid.eq(state.valid),
                lane.protect.eq(state.protect),
            ]
        return m

    def _connect_table(
        self, m: Module, table: SlotTable, window: RecentWindow, assigner: SlotAssigner
    ) -> None:
        """Connect the window, writes, lookups and score updates of the slot table."""
        m.d.comb += [
            table.oldest.eq(window.oldest),
            table.leaving.eq(window.leaving),
            table.place.eq(assigner.place),
            table.place_row.eq(assigner.place_row),
            table.placing.eq(assigner.placing),
            assigner.marked.eq(table.marked),
            table.forgets.eq(assigner.forgets),
            table.forgotten.eq(assigner.cached_head),
            table.lookup.eq(assigner.lookup),
            table.lookup_address.eq(assigner.lookup_address),
            assigner.tokens_held.eq(table.tokens),
        ]
        if self.parameters.centred:
            m.d.comb += [
                table.start_lookup.eq(assigner.start_lookup),
                table.start_head.eq(assigner.start_head),
                assigner.start.eq(table.start),
            ]
        # Score updates of slots cannot wait; those of freed slots and of vectors use the remaining
        # cycles.
        p, freed = self.parameters, assigner.freed
        far = assigner.cached_head >= p.stored_heads if p.resident_heads is not None else Const(0)
        m.d.comb += freed.ready.eq(far | (self.scores.ready & ~table.score_valid))
        with m.If(table.score_valid):
            m.d.comb += [self.scores.valid.eq(1), self.scores.payload.eq(table.score)]
        with m.Elif(freed.valid & ~far):
            m.d.comb += [self.scores.valid.eq(1), self.scores.payload.eq(freed.payload)]

    def _connect_vectors(
        self,
        m: Module,
        table: SlotTable,
        window: RecentWindow,
        assigner: SlotAssigner,
        layer: Value,
    ) -> Ready:
        """Decide on popular tokens; return what the next tokens and searches wait for."""
        p = self.parameters
        if not p.vectors:
            m.d.comb += self.vector_request.ready.eq(1)
            return Ready(idle=Const(1), current=Const(1), decided=Const(1))
        m.submodules.recomputed_vectors = vectors = LayerVectors(parameters=p)
        m.submodules.judge = judge = ImportanceJudge(parameters=p)
        connect_streams(m, vectors.vector_stores, self.vector_stores)
        connect_streams(m, self.vector_request, vectors.vector_request)
        m.d.comb += [
            judge.standing.eq(table.standing),
            judge.score.eq(table.score.score),
            judge.ends.eq(table.searched),
            judge.head.eq(table.searched_head),
            vectors.important.eq(judge.important),
            vectors.layer.eq(layer),
            vectors.now.eq(window.now),
            vectors.outcome_valid.eq(assigner.arrives),
            vectors.outcome.head.eq(assigner.head),
            vectors.outcome.last.eq(assigner.last_head),
            vectors.outcome.evicts.eq(assigner.evicts),
            vectors.outcome.evicted.eq(assigner.evicted),
            vectors.prefilled_valid.eq(assigner.prefilled),
            vectors.prefilled.head.eq(self.prefill.payload.head),
            vectors.prefilled.token.eq(self.prefill.payload.token),
            self.vector_response.eq(vectors.vector_response),
            table.promoted.eq(vectors.promoted),
            vectors.clear.eq(assigner.frees_vectors),
            vectors.scores.ready.eq(~table.score_valid & ~assigner.freed.valid & self.scores.ready),
            self.scores.valid.eq(vectors.scores.valid),
            self.scores.payload.eq(vectors.scores.payload),
        ]
        return Ready(idle=vectors.idle, current=vectors.current, decided=~vectors.decides)
