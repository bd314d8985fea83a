"""Assigns slots to tokens: those that a prefill keeps, and in every head the arriving token.

Sections 4.1 and 5.3. Slots fill in order: an arriving token takes the first free slot of a head, or
the slot of the head's victim. Only the end of a text frees slots, all of its layer.
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import (
    EvictionParameters,
    placement_layout,
    prefill_layout,
    value_layout,
)
from hdl.kelle.eviction.head_scores import start_ports
from hdl.stream.connect import connect_streams, fork_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

WAITING_VALUES = 4
"""Heads whose values can wait until the attention has used the victim's value."""


@dataclass(frozen=True)
class Kept:
    """Head of the offered prefilled token among those of all layers."""

    may_change: Signal  # No step is running, and no text ends.
    known: Signal  # The head and its count are those of the offered token.
    head: Signal
    count: Signal


class SlotAssigner(Unit):
    """Write each token into its slot, and report the slot and the token that it evicts.

    Prefilled tokens are accepted between steps. A step takes one token and places it in all heads
    of the layer, in ascending order.

    **Latency** 3 cycles from a victim to its placement. **Throughput** one prefilled token per
    cycle, and two cycles more for the first one of a head; one head per 5 cycles.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer.
    clears : In(stream)
        As in `EvictionController`.
    freed : Out(stream)
        Score updates of the slots that become free.
    forgets : Out(1)
        All slots of `cached_head` are free.
    frees_vectors : Out(1)
        All slots of the layer are free, and its stored vectors are not needed any more.
    prefill, positions, placements, values, no_victim, filled : In(stream), Out
        As in `EvictionController`.
    may_load, may_step : In(1)
        Whether a prefilled token, or the token of a step, may be taken.
    now : In
        Position of the step's token, from the cycle after its transfer.
    stepping : Out(1)
        A step has begun, and its token is not yet placed in all heads.
    head, cached_head, last_head : Out
        The current head of the step, the same among those of all layers, and whether it is the
        last one.
    victims : In(stream)
        As in `HeadVictims`; valid only when the search of the current head has ended.
    may_place : In(1)
        The consumers of `arrives` can take another token.
    prefilled, arrives : Out(1)
        A prefilled token, or the token of the step, is written in this cycle.
    evicts, evicted : Out
        Valid while `arrives`: the slot holds a token; the record of this token.
    place, place_row, placing, marked, lookup, lookup_address : Out, In
        Writes and lookups of the `SlotTable`.
    start_lookup, start_head, start : Out, In
        With `centred`: look up the importance with which a token arrives in a head.
    lookup_request : In(stream)
        Lookups of others; not ready while the current head's record is needed.
    tokens_held : In
        Records of the slots looked up last, `tokens` of the `SlotTable`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "clears": In(stream.Signature(p.layer_bits)),
                "freed": Out(stream.Signature(p.score_layout)),
                "forgets": Out(1),
                "frees_vectors": Out(1),
                "prefill": In(stream.Signature(prefill_layout(p))),
                "positions": In(stream.Signature(p.position_bits)),
                "may_load": In(1),
                "may_step": In(1),
                "now": In(p.position_bits),
                "stepping": Out(1),
                "head": Out(p.head_bits),
                "cached_head": Out(p.cached_head_bits),
                "last_head": Out(1),
                "victims": In(stream.Signature(p.choice_layout)),
                "may_place": In(1),
                "prefilled": Out(1),
                "arrives": Out(1),
                "evicts": Out(1),
                "evicted": Out(p.token_layout),
                "place": Out(1),
                "place_row": Out(p.evictor.row_bits),
                "placing": Out(p.placing_layout),
                "marked": In(p.evictor.rows),
                "lookup": Out(1),
                "lookup_address": Out(p.address_bits),
                "lookup_request": In(stream.Signature(p.address_bits)),
                "tokens_held": In(data.ArrayLayout(p.token_layout, p.evictor.rows)),
                "placements": Out(stream.Signature(placement_layout(p))),
                "values": Out(stream.Signature(value_layout(p))),
                "filled": Out(data.ArrayLayout(bits_for(p.evictor.slots), p.cached_heads)),
                "no_victim": Out(1),
                **{name: member.flip() for name, member in start_ports(p).items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Take a token, and for each head choose a slot, look it up, write it, and report it."""
        m = Module()
        p = self.parameters
        row_bits, victim = p.evictor.row_bits, self.victims.payload
        # A count per head identifies the slots in use. That of the current head is in a register,
        # because the choice among all heads takes most of a cycle.
        count, full = Signal(bits_for(p.evictor.slots), reset_less=True), Signal()
        slot = Signal(p.evictor.index_width, reset_less=True)
        row = slot[:row_bits]
        address = self.cached_head * p.tiles + slot[row_bits:]
        offers, frees = Signal(), Signal()
        offered = Signal(placement_layout(p), reset_less=True)
        m.d.comb += [
            full.eq(count == p.evictor.slots),
            self.last_head.eq(self.head == p.kv_heads - 1),
            self.evicted.eq(Array(self.tokens_held)[row]),
            self.stepping.eq(1),
            self.freed.payload.entry.eq(self.cached_head * p.evictor.slots + (count - 1)),
            frees.eq(self.freed.valid & self.freed.ready),
        ]
        kept = self._kept_head(m)

        with m.FSM() as fsm:
            with m.State("REST"):
                # The end of a text precedes the tokens of the next one.
                ends = self.clears.valid & (self.clears.payload == self.layer)
                m.d.comb += [
                    self.stepping.eq(0),
                    kept.may_change.eq(1),
                    self.positions.ready.eq(self.may_step & ~ends),
                    self.prefill.ready.eq(self.may_step & self.may_load & ~ends & kept.known),
                ]
                with m.If(self.positions.valid & self.positions.ready):
                    m.next = "COUNT"
                with m.If(ends & self.may_step & self.may_load):
                    m.next = "FREE_HEAD"
                m.d.sync += self.cached_head.eq(p.cached_head(self.layer, self.head))
            # The last slots of a head become free first, so that the count stays that of the slots
            # in use.
            with m.State("FREE_HEAD"):
                m.d.comb += self.stepping.eq(0)
                m.d.sync += count.eq(Array(self.filled)[self.cached_head])
                m.next = "FREE"
            with m.State("FREE"):
                m.d.comb += [
                    self.stepping.eq(0),
                    self.freed.valid.eq(count != 0),
                    self.forgets.eq(count == 0),
                    self.frees_vectors.eq(self.forgets & self.last_head),
                ]
                with m.If(frees):
                    m.d.sync += count.eq(count - 1)
                with m.If(self.forgets):
                    m.d.sync += [
                        self.head.eq(Mux(self.last_head, 0, self.head + 1)),
                        self.cached_head.eq(self.cached_head + 1),
                    ]
                    m.next = "FREE_HEAD"
                    with m.If(self.last_head):
                        m.next = "FREE_VECTORS"
            with m.State("FREE_VECTORS"):
                m.d.comb += [self.stepping.eq(0), self.clears.ready.eq(self.may_step)]
                with m.If(self.clears.ready):
                    m.next = "REST"
            with m.State("COUNT"):
                m.d.sync += count.eq(Array(self.filled)[self.cached_head])
                m.next = "CHOOSE"
            # The head's search is complete: take the victim's slot, or the first free one.
            with m.State("CHOOSE"):
                m.d.comb += self.victims.ready.eq(1)
                with m.If(self.victims.valid):
                    m.d.sync += [slot.eq(Mux(full, victim.index, count)), self.evicts.eq(full)]
                    # Illegal positions may protect all tokens: any slot will do, so the last one.
                    with m.If(full & ~victim.found):
                        m.d.sync += [slot.eq(p.evictor.slots - 1), self.no_victim.eq(1)]
                    m.next = "LOOK_UP"
            # The slot's record is valid one cycle later, and held until the token is written.
            with m.State("LOOK_UP"):
                m.next = "WRITE"
            with m.State("WRITE"):
                # A wavefront has priority at the row's write port.
                m.d.comb += self.arrives.eq(self.may_place & ~self.marked.bit_select(row, 1))
                with m.If(self.arrives):
                    m.d.sync += [
                        offered.head.eq(self.head),
                        offered.slot.eq(slot),
                        offered.evicts.eq(self.evicts),
                        offered.evicted.eq(self.evicted),
                    ]
                    m.next = "REPORT"
            # The next head begins when the placement is transferred.
            with m.State("REPORT"):
                m.d.comb += offers.eq(1)
                with m.If(self.placements.valid & self.placements.ready):
                    m.d.sync += [
                        self.head.eq(Mux(self.last_head, 0, self.head + 1)),
                        self.cached_head.eq(self.cached_head + 1),
                    ]
                    m.next = "COUNT"
                    with m.If(self.last_head):
                        m.next = "REST"

        # Both kinds of tokens share the table's write port, and never in the same cycle.
        token = self.prefill.payload
        m.d.comb += [
            self.prefilled.eq(self.prefill.valid & self.prefill.ready),
            self.place.eq(self.prefilled | self.arrives),
            self.place_row.eq(row),
            self.placing.prefill.eq(self.prefilled),
            self.placing.importance.eq(
                Mux(self.prefilled, token.importance, self.start) if p.centred else token.importance
            ),
            self.placing.address.eq(address),
            self.placing.token.position.eq(self.now),
        ]
        with m.If(kept.may_change):
            m.d.comb += [
                self.place_row.eq(kept.count),
                self.placing.address.eq(kept.head * p.tiles + (kept.count >> row_bits)),
                self.placing.token.eq(token.token),
            ]
        # A token, whether prefilled or arriving, adds one to its head's count, unless it evicts.
        changes, changed = Signal(), Signal(p.cached_head_bits)
        m.d.comb += [
            changes.eq(self.prefilled | (self.arrives & ~self.evicts) | frees),
            changed.eq(Mux(kept.may_change, kept.head, self.cached_head)),
        ]
        before = Mux(kept.may_change, kept.count, count)
        with m.If(changes):
            m.d.sync += Array(self.filled)[changed].eq(Mux(frees, count - 1, before + 1))

        # The current head has priority at the lookups.
        own = fsm.ongoing("LOOK_UP")
        if p.centred:
            m.d.comb += [self.start_lookup.eq(own), self.start_head.eq(self.cached_head)]
        m.d.comb += [
            self.lookup_request.ready.eq(~(own | fsm.ongoing("WRITE"))),
            self.lookup.eq(own | (self.lookup_request.valid & self.lookup_request.ready)),
            self.lookup_address.eq(Mux(own, address, self.lookup_request.payload)),
        ]
        # The key is written at once, the value later.
        m.submodules.waiting = waiting = Fifo(shape=value_layout(p), depth=WAITING_VALUES)
        fork_handshake(m, offers, [self.placements, waiting.source])
        connect_streams(m, waiting.sink, self.values)
        m.d.comb += [
            self.placements.payload.eq(offered),
            waiting.source.payload.head.eq(offered.head),
            waiting.source.payload.slot.eq(offered.slot),
        ]
        return m

    def _kept_head(self, m: Module) -> Kept:
        """Look up the count of the head of the offered prefilled token, if it is another head.

        The number of the head is derived in one cycle, its count in the next.
        """
        p, offered = self.parameters, self.prefill.payload
        kept = Kept(
            may_change=Signal(name="rests"),
            known=Signal(name="is_kept"),
            head=Signal(p.cached_head_bits, name="kept_head", reset_less=True),
            count=Signal(bits_for(p.evictor.slots), name="kept_count", reset_less=True),
        )
        of_layer, of_head = Signal(p.layer_bits), Signal(p.head_bits)
        numbered, counted, same = Signal(), Signal(), Signal()
        m.d.comb += [
            same.eq((of_layer == self.layer) & (of_head == offered.head)),
            kept.known.eq(counted & same),
        ]
        m.d.sync += [
            of_layer.eq(self.layer),
            of_head.eq(offered.head),
            kept.head.eq(p.cached_head(self.layer, offered.head)),
            # An arriving token, and the end of a text, change counts.
            numbered.eq(self.prefill.valid & kept.may_change),
            counted.eq(numbered & same & kept.may_change),
        ]
        with m.If(self.prefilled):
            m.d.sync += kept.count.eq(kept.count + 1)
        with m.Elif(~kept.known):
            m.d.sync += kept.count.eq(Array(self.filled)[kept.head])
        return kept
