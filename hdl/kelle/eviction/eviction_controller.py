"""Kelle's eviction controller: which slot the arriving token takes, and how its token is stored.

Sections 4.1, 5.1 and 5.3. It feeds the systolic evictor with the state of the slots, takes its
victims, gives the arriving token a slot in every head, and decides which tokens are so popular
that their input vector is stored instead of their keys and values.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, enum, stream
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
from hdl.kelle.eviction.recomputed_vectors import RecomputedVectors
from hdl.kelle.eviction.slot_table import SlotTable
from hdl.kelle.eviction.systolic_evictor import SystolicEvictor
from hdl.stream.fall_through_fifo import FallThroughFifo
from hdl.unit import Unit

WAITING_VALUES = 4
"""Heads whose values can wait for the attention to be done with the victim's."""


class State(enum.Enum, shape=2):
    """What the controller does with the arriving token."""

    IDLE = 0
    LOOKUP = 1
    PLACE = 2
    OFFER = 3


class EvictionController(Unit):
    """Run the eviction and recomputation policy (AERP) for all heads of a layer.

    A decode step: the token's position is given to `tokens`; the heads follow in ascending order.
    For each head the scheduler sends the wavefronts of its search to `wavefronts`, which wait for
    the token, and the scores of lane i to `scores_in[i]`, i cycles after the wavefront's `started`.
    The victim's slot, or the first free one, then appears in `placements`: the key may be written
    at once. The value's place appears in `values`, to be taken when the attention no longer needs
    the victim's value. Wavefronts with `fresh` and `alone` give the arriving token its own score.
    With `evict_before`, the placements of all heads come first, by the victims of the step before,
    and the arriving token's slot is marked `fresh` in the wavefront of its tile; a search before
    the first step finds the first victims.

    A token that leaves the recent window is popular if more than `popular_above` heads do not
    evict it in that very step; it is then recomputed from its input vector until the last head has
    evicted it. The decision is made once.

    **Latency** the evictor starts a wavefront 1 cycle after it is taken; a placement appears 3
    cycles after the evictor's victim. **Throughput** one wavefront a cycle, but wavefronts with
    `compare` at least `rows` cycles apart.

    **Numerics** as `SystolicEvictor`; the exported scores are the most significant bits below the
    largest magnitude of the head so far, saturated, in offset binary for raw scores.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    prefill : In(stream)
        Tokens that the prefill keeps: head, position, importance, and whether they are recomputed.
        The last of a head is the youngest.
    tokens : In(stream)
        Position of the arriving token; taken when the step before is done.
    wavefronts : In(stream)
        `head`, `tile`, and the evictor's `load`, `compare`, `last`; `fresh`: row `row` holds the
        arriving token, which starts from zero; `alone`: no other row takes part.
    started : Out(1)
        A wavefront is at row 0 of the evictor: lane 0 of its scores is sampled in this cycle.
    scores_in : In(ArrayLayout(score, rows))
        The array's scores.
    placements : Out(stream)
        Head and slot of the arriving token, and the token that it evicts, if any.
    values : Out(stream)
        Head and slot again, in the same order.
    vector_stores : Out(stream)
        Position of a token that became popular, and the place of its input vector.
    vectors : Out(ArrayLayout(vector, vectors))
        Which tokens are recomputed.
    look : In(stream)
        Head (above) and tile (below) of slots to show.
    shown : Out(ArrayLayout(token, rows))
        What they hold, a cycle later.
    filled : Out(ArrayLayout(count, heads))
        Slots in use.
    scores : Out(stream)
        Score updates for the refresh controllers; while it is not ready, neither a wavefront nor a
        prefilled token is taken.

    Raises
    ------
    ValueError
        By `EvictionParameters`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        rows = p.evictor.rows
        super().__init__(
            {
                "prefill": In(stream.Signature(prefill_layout(p))),
                "tokens": In(stream.Signature(p.position_bits)),
                "wavefronts": In(stream.Signature(wavefront_layout(p))),
                "started": Out(1),
                "scores_in": In(data.ArrayLayout(p.evictor.input_shape, rows)),
                "placements": Out(stream.Signature(placement_layout(p))),
                "values": Out(stream.Signature(value_layout(p))),
                "vector_stores": Out(stream.Signature(p.promoted_layout)),
                "vectors": Out(data.ArrayLayout(vector_layout(p), max(p.vectors, 1))),
                "lookup_request": In(stream.Signature(p.address_bits)),
                "lookup_response": Out(data.ArrayLayout(p.token_layout, rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.evictor.slots), p.heads)),
                "scores": Out(stream.Signature(p.score_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect table and evictor, and run the policy beside them."""
        m = Module()
        p = self.parameters
        m.submodules.table = self.table = SlotTable(parameters=p)
        m.submodules.evictor = self.evictor = SystolicEvictor(parameters=p.evictor)
        self.now = Signal(p.position_bits)
        self.stepping = Signal()
        self.state = Signal(State)
        self.head = Signal(p.head_bits)
        self.quiet = Signal()
        self.vectors_idle = Signal()
        self.peaks = Array(
            Signal(p.evictor.score_width - 1, name=f"peak_{h}") for h in range(p.heads)
        )
        self.halve = Array(Signal(name=f"halve_{h}") for h in range(p.heads))
        self._protect(m)
        self._pass_wavefronts(m)
        self._place(m)
        self._keep_vectors(m)
        return m

    def _protect(self, m: Module) -> None:
        """Say from which position on a token is in the recent window."""
        p = self.parameters
        # The step that the victim is for: this one, or the next.
        ahead = self.now + int(p.evict_before)
        inside = ahead >= p.window - 1
        m.d.comb += self.table.oldest.eq(Mux(inside, ahead - (p.window - 1), 0))

    def _pass_wavefronts(self, m: Module) -> None:
        """Read row 0 when a wavefront is taken, start the evictor in the next cycle."""
        p, table, evictor = self.parameters, self.table, self.evictor
        rows = p.evictor.rows
        wavefront, header = self.wavefronts.payload, Signal(wavefront_layout(p), reset_less=True)
        address = Signal(p.address_bits, reset_less=True)
        waits = Signal()
        spacing = Signal(range(rows + 1))
        in_flight = Signal(range(rows + 4))
        starts, ready, in_step = Signal(), Signal(), Signal()
        m.d.comb += [
            # A search protects the window of its own step, whose token may come later than it.
            in_step.eq(1 if p.evict_before else self.stepping | wavefront.alone),
            self.wavefronts.ready.eq((~waits | starts) & self.scores.ready & in_step),
            table.accept.eq(self.wavefronts.valid & self.wavefronts.ready),
            table.accept_address.eq(wavefront.head * p.tiles + wavefront.tile),
            ready.eq(waits & (~header.compare | (spacing == 0))),
            evictor.wavefronts.valid.eq(ready),
            starts.eq(ready & evictor.wavefronts.ready),
            self.started.eq(starts),
            self.quiet.eq(~waits & (in_flight == 0)),
        ]
        with m.If(table.accept):
            m.d.sync += [waits.eq(1), header.eq(wavefront), address.eq(table.accept_address)]
        with m.Elif(starts):
            m.d.sync += waits.eq(0)
        with m.If(starts & header.compare):
            m.d.sync += spacing.eq(rows - 1)
        with m.Elif(spacing != 0):
            m.d.sync += spacing.eq(spacing - 1)
        with m.If(starts):
            m.d.sync += in_flight.eq(rows + 3)
        with m.Elif(in_flight != 0):
            m.d.sync += in_flight.eq(in_flight - 1)

        count = Signal(bits_for(p.evictor.slots))
        whole = count[p.evictor.row_bits :]
        resident = Signal(bits_for(rows))
        m.d.comb += count.eq(Array(self.filled[h] for h in range(p.heads))[header.head])
        with m.If(header.alone):
            m.d.comb += resident.eq(0)
        with m.Elif(header.tile < whole):
            m.d.comb += resident.eq(rows)
        with m.Elif(header.tile == whole):
            m.d.comb += resident.eq(count[: p.evictor.row_bits])

        goes = table.wavefront
        peak = self.peaks[header.head]
        kept = p.score_bits - int(p.evictor.input_shape.signed)
        for bit in range(kept, p.evictor.score_width - 1):
            with m.If(peak[bit]):
                m.d.comb += goes.shift.eq(bit + 1 - kept)
        m.d.comb += [
            table.strobe.eq(starts),
            goes.address.eq(address),
            goes.head.eq(header.head),
            goes.resident.eq(resident),
            goes.row.eq(header.row),
            goes.fresh.eq(header.fresh),
            goes.alone.eq(header.alone),
            goes.compare.eq(header.compare),
            goes.last.eq(header.last),
            evictor.wavefronts.payload.load.eq(header.load),
            # An arriving token's own scores belong to no search.
            evictor.wavefronts.payload.compare.eq(header.compare & ~header.alone),
            evictor.wavefronts.payload.last.eq(header.last & ~header.alone),
            table.updates.eq(evictor.updates),
        ]
        if p.evictor.halves:
            m.d.comb += evictor.wavefronts.payload.halve.eq(
                header.load & ~header.alone & self.halve[header.head]
            )
        for i in range(rows):
            m.d.comb += [
                evictor.lanes[i].score.eq(self.scores_in[i]),
                evictor.lanes[i].importance.eq(table.states[i].importance),
                evictor.lanes[i].valid.eq(table.states[i].valid),
                evictor.lanes[i].protect.eq(table.states[i].protect),
            ]
        with m.If(table.peak_valid):
            old = self.peaks[table.peak_head]
            m.d.sync += old.eq(old | table.peak)

    def _place(self, m: Module) -> None:
        """Give the arriving token a slot, head after head; load what a prefill keeps."""
        p, table, evictor = self.parameters, self.table, self.evictor
        row_bits = p.evictor.row_bits
        state, head = self.state, self.head
        counts = Array(self.filled[h] for h in range(p.heads))
        full = Signal()
        slot = Signal(p.evictor.index_width, reset_less=True)
        self.evicts = Signal(reset_less=True)
        self.last_head = Signal()
        victim = evictor.victims.payload
        m.d.comb += self.last_head.eq(head == p.heads - 1)
        m.submodules.values = values = FallThroughFifo(shape=value_layout(p), depth=WAITING_VALUES)

        if p.evict_before:
            # Searches run on by themselves; what they find is for the next step.
            found = Array(
                Signal(p.evictor.index_width, name=f"victim_{h}", reset_less=True)
                for h in range(p.heads)
            )
            searched = Signal(p.head_bits)
            m.d.comb += evictor.victims.ready.eq(1)
            with m.If(evictor.victims.valid):
                m.d.sync += [
                    found[searched].eq(victim.index),
                    searched.eq(Mux(searched == p.heads - 1, 0, searched + 1)),
                ]
                if p.evictor.halves:
                    m.d.sync += self.halve[searched].eq(victim.saturated)
            chosen, chosen_valid = found[head], self.quiet
        else:
            chosen, chosen_valid = victim.index, evictor.victims.valid
            m.d.comb += evictor.victims.ready.eq((state == State.IDLE) & self.stepping)
            if p.evictor.halves:
                with m.If(evictor.victims.valid & evictor.victims.ready):
                    m.d.sync += self.halve[head].eq(victim.saturated)

        address = head * p.tiles + slot[row_bits:]
        evicted = Signal(p.token_layout)
        self.evicted = evicted
        offered = Signal(placement_layout(p), reset_less=True)
        m.d.comb += [
            full.eq(counts[head] == p.evictor.slots),
            evicted.eq(Array(table.tokens[i] for i in range(p.evictor.rows))[slot[:row_bits]]),
            self.tokens.ready.eq(~self.stepping & self.vectors_idle),
            self.lookup_request.ready.eq(state != State.LOOKUP),
            self.lookup_response.eq(table.tokens),
            table.lookup.eq(self.lookup_request.valid | (state == State.LOOKUP)),
            table.lookup_address.eq(
                Mux(state == State.LOOKUP, address, self.lookup_request.payload)
            ),
            self.placements.payload.eq(offered),
            self.placements.valid.eq((state == State.OFFER) & values.source.ready),
            values.source.payload.head.eq(offered.head),
            values.source.payload.slot.eq(offered.slot),
            values.source.valid.eq((state == State.OFFER) & self.placements.ready),
            self.values.payload.eq(values.sink.payload),
            self.values.valid.eq(values.sink.valid),
            values.sink.ready.eq(self.values.ready),
        ]

        kept = self.prefill.payload
        prefilled = Signal()
        fill = counts[kept.head]
        m.d.comb += [
            self.prefill.ready.eq(
                self.quiet & ~self.stepping & self.tokens.ready & self.scores.ready
            ),
            prefilled.eq(self.prefill.valid & self.prefill.ready),
            table.place.eq(prefilled | ((state == State.PLACE) & self.vectors_idle)),
            table.place_row.eq(Mux(prefilled, fill[:row_bits], slot[:row_bits])),
            table.placing.prefill.eq(prefilled),
            table.placing.importance.eq(kept.importance),
            table.placing.address.eq(
                Mux(prefilled, kept.head * p.tiles + fill[row_bits:], address)
            ),
            table.placing.token.position.eq(self.now),
        ]
        with m.If(prefilled):
            folded = kept.importance ^ kept.importance[-1].replicate(p.evictor.score_width)
            m.d.comb += table.placing.token.eq(kept.token)
            m.d.sync += [
                fill.eq(fill + 1),
                self.now.eq(kept.token.position),
                self.peaks[kept.head].eq(self.peaks[kept.head] | folded[:-1]),
            ]
        self.prefilled = prefilled

        with m.If(self.tokens.valid & self.tokens.ready):
            m.d.sync += [self.now.eq(self.tokens.payload), self.stepping.eq(1)]
        with m.Switch(state):
            with m.Case(State.IDLE):
                with m.If(self.stepping & chosen_valid):
                    m.d.sync += [
                        slot.eq(Mux(full, chosen, counts[head])),
                        self.evicts.eq(full),
                        state.eq(State.LOOKUP),
                    ]
            with m.Case(State.LOOKUP):
                m.d.sync += state.eq(State.PLACE)
            with m.Case(State.PLACE):
                with m.If(table.placed):
                    m.d.sync += [
                        offered.head.eq(head),
                        offered.slot.eq(slot),
                        offered.evicts.eq(self.evicts),
                        offered.evicted.eq(evicted),
                        state.eq(State.OFFER),
                    ]
                    with m.If(~self.evicts):
                        m.d.sync += counts[head].eq(counts[head] + 1)
            with m.Case(State.OFFER):
                with m.If(self.placements.valid & self.placements.ready):
                    m.d.sync += [state.eq(State.IDLE), head.eq(Mux(self.last_head, 0, head + 1))]
                    with m.If(self.last_head):
                        m.d.sync += self.stepping.eq(0)

    def _keep_vectors(self, m: Module) -> None:
        """Tell of every head's victim, and merge what the vectors and the slots have to say."""
        p, table = self.parameters, self.table
        m.d.comb += [
            self.scores.valid.eq(table.score_valid),
            self.scores.payload.eq(table.score),
        ]
        if not p.vectors:
            m.d.comb += self.vectors_idle.eq(1)
            return

        m.submodules.recomputed_vectors = kept = RecomputedVectors(parameters=p)
        m.d.comb += [
            kept.now.eq(self.now),
            kept.outcome_valid.eq((self.state == State.PLACE) & table.placed),
            kept.outcome.head.eq(self.head),
            kept.outcome.last.eq(self.last_head),
            kept.outcome.evicts.eq(self.evicts),
            kept.outcome.evicted.eq(self.evicted),
            kept.kept_valid.eq(self.prefilled),
            kept.kept.head.eq(self.prefill.payload.head),
            kept.kept.token.eq(self.prefill.payload.token),
            self.vectors_idle.eq(kept.idle),
            self.vectors.eq(kept.vectors),
            table.promoted.eq(kept.promoted),
            self.vector_stores.payload.eq(kept.vector_stores.payload),
            self.vector_stores.valid.eq(kept.vector_stores.valid),
            kept.vector_stores.ready.eq(self.vector_stores.ready),
            kept.scores.ready.eq(~table.score_valid & self.scores.ready),
        ]
        with m.If(~table.score_valid):
            m.d.comb += [
                self.scores.valid.eq(kept.scores.valid),
                self.scores.payload.eq(kept.scores.payload),
            ]
