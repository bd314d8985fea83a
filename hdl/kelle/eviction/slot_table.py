"""Kelle's slot table: what each slot of the cache holds, a row of it beside each evictor row.

Sections 4.1 and 5.1. Slots are not ordered, since attention does not depend on the order of keys;
each therefore has a register for its token's position. The table follows the evictor's wavefronts
down the rows, a row a cycle.
"""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.systolic_evictor import ScoreSource
from hdl.memory.memory import Memory
from hdl.unit import Unit


@dataclass(frozen=True)
class Answered:
    """The wavefront whose new importance the evictor gives in this cycle, and its slot."""

    wavefront: data.View
    takes_part: Signal  # The slot holds a token, or that of this step.
    standing: data.View  # What the token is in its head.
    token: data.View
    marked: Signal  # It was promoted in the step before, and its slot does not know.


class SlotRow(Unit):
    """The slots of one evictor row, of all tiles and heads.

    Reads a slot in the cycle before the evictor's row consumes it, and writes it back in the cycle
    after. Positions are kept twice, for wavefronts and for lookups, so that neither waits.

    **Latency** 1 cycle from `read_strobe` to `state`, and from `lookup` to `token`.
    **Throughput** one wavefront a cycle.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions.

    Members
    -------
    row : In
        The row's number, a constant of the instance.
    read_strobe, read_address : In
        The slot that is consumed in the next cycle; not read again while a wavefront waits.
    strobe_in, pass_in : In
        The wavefront that consumes the slot in this cycle.
    strobe_out, pass_out : Out
        The same, a cycle later.
    oldest : In(position)
        Positions from here on are in the recent window.
    leaving : In(position)
        The one that has just left it.
    promoted : In(promoted)
        A token that is marked as recomputed when a wavefront passes it.
    state : Out(state)
        What the evictor is told.
    update : In
        The evictor's new importance.
    peak_in, peak_out : In, Out
        Magnitudes of importance in the rows above, or-ed; and with this row's.
    placing, place : In
        A token to write; not while `marked`.
    marked : Out(1)
        A promoted token is marked in this cycle, by the only write port.
    lookup, lookup_address : In
        A slot to show.
    token : Out(token)
        What it holds.
    score, score_valid : Out
        Score update of a slot for the refresh controllers.
    standing : Out(standing)
        What its token is in the head, if the score belongs to a search.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        magnitude = p.evictor.score_width - 1
        super().__init__(
            {
                "row": In(p.evictor.row_bits),
                "read_strobe": In(1),
                "read_address": In(p.address_bits),
                "strobe_in": In(1),
                "pass_in": In(p.pass_layout),
                "strobe_out": Out(1),
                "pass_out": Out(p.pass_layout),
                "oldest": In(p.position_bits),
                "leaving": In(p.position_bits),
                "promoted": In(p.promoted_layout),
                "state": Out(p.state_layout),
                "update": In(p.evictor.update_layout),
                "peak_in": In(magnitude),
                "peak_out": Out(magnitude),
                "placing": In(p.placing_layout),
                "place": In(1),
                "marked": Out(1),
                "lookup": In(1),
                "lookup_address": In(p.address_bits),
                "token": Out(p.token_layout),
                "score": Out(p.score_layout),
                "score_valid": Out(1),
                "standing": Out(p.standing_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read, judge, write back."""
        m = Module()
        p = self.parameters
        depth = max(p.cached_heads * p.tiles, 2)
        token_width = Shape.cast(p.token_layout).width
        # Positions twice, since lookups come at any time and wavefronts do not wait.
        m.submodules.importance = importance = Memory(depth=depth, width=p.evictor.score_width)
        m.submodules.tokens = tokens = Memory(depth=depth, width=token_width)
        m.submodules.lookup_tokens = lookup_tokens = Memory(depth=depth, width=token_width)
        m.d.comb += [
            importance.read_enable.eq(self.read_strobe),
            importance.read_address.eq(self.read_address),
            tokens.read_enable.eq(self.read_strobe),
            tokens.read_address.eq(self.read_address),
            lookup_tokens.read_enable.eq(self.lookup),
            lookup_tokens.read_address.eq(self.lookup_address),
            self.state.importance.eq(importance.read_data),
            self.token.eq(lookup_tokens.read_data),
        ]
        held = data.View(p.token_layout, tokens.read_data)
        answered = self._judge(m, held)
        m.d.comb += [
            self.pass_out.eq(answered.wavefront),
            self.marked.eq(answered.marked),
        ]

        # The evictor's answer comes when no prefill does, so that one write port serves both.
        updates = Signal()
        prefills = self.place & self.placing.prefill
        m.d.comb += [
            updates.eq(self.update.valid & answered.takes_part),
            importance.write_enable.eq(updates | prefills),
            importance.write_address.eq(
                Mux(updates, answered.wavefront.address, self.placing.address)
            ),
            importance.write_data.eq(Mux(updates, self.update.importance, self.placing.importance)),
        ]
        # Marking goes first: the arriving token can wait, the wavefront cannot.
        for memory in (tokens, lookup_tokens):
            m.d.comb += [
                memory.write_enable.eq(answered.marked | self.place),
                memory.write_address.eq(
                    Mux(answered.marked, answered.wavefront.address, self.placing.address)
                ),
                memory.write_data.eq(Mux(answered.marked, answered.token, self.placing.token)),
            ]
        self._export_score(m, answered, updates, prefills)
        return m

    def _judge(self, m: Module, held: data.View) -> Answered:
        """Tell the evictor of the slot, and keep what is needed when it answers a cycle later."""
        p = self.parameters
        wavefront = self.pass_in
        resident, fresh = Signal(), Signal()
        answered = Answered(
            wavefront=Signal(p.pass_layout, name="answered", reset_less=True),
            takes_part=Signal(name="takes_part", reset_less=True),
            standing=Signal(p.standing_layout, name="answered_standing"),
            token=Signal(p.token_layout, name="answered_token", reset_less=True),
            marked=Signal(name="marked"),
        )
        is_promoted = self.promoted.valid & (held.position == self.promoted.position)
        m.d.comb += [
            resident.eq(self.row < wavefront.resident),
            fresh.eq(wavefront.fresh & (self.row == wavefront.row)),
            # A slot whose token is only arriving counts as empty: its importance starts from zero.
            self.state.valid.eq(resident & ~fresh),
            self.state.protect.eq(p.is_sink(held.position) | (held.position >= self.oldest)),
        ]
        # The token that has just left the window is one of those that may be evicted.
        evictable = self.strobe_in & self.state.valid & ~self.state.protect
        m.d.sync += [
            self.strobe_out.eq(self.strobe_in),
            answered.wavefront.eq(wavefront),
            answered.takes_part.eq(resident | fresh),
            answered.standing.evictable.eq(evictable),
            answered.standing.leaving.eq(evictable & (held.position == self.leaving)),
            answered.marked.eq(self.strobe_in & resident & ~fresh & is_promoted),
            answered.token.eq(held),
        ]
        # A promoted token's slots are marked as the next step's wavefronts pass them.
        with m.If(is_promoted):
            m.d.sync += [
                answered.token.recomputed.eq(1),
                answered.token.vector.eq(self.promoted.vector),
            ]
        return answered

    def _export_score(
        self, m: Module, answered: Answered, updates: Signal, prefills: Value
    ) -> None:
        """Cut an importance to the bits that the refresh controllers see; pass on its magnitude."""
        p = self.parameters
        width = p.evictor.score_width
        new = self.update.importance
        # The magnitude of a number in two's complement, but for one: its bits, or their inverse.
        folded = (new ^ new[-1].replicate(width))[: width - 1]
        m.d.sync += self.peak_out.eq(self.peak_in | Mux(updates, folded, 0))

        # The most significant bits, in offset binary where sums have either sign.
        offset = p.evictor.source is ScoreSource.RAW
        scaled = Signal(signed(width))
        high = (1 << p.score_bits - 1) - 1 if offset else (1 << p.score_bits) - 1
        low = -high - 1 if offset else 0
        clipped = Mux(scaled > high, high, Mux(scaled < low, low, scaled))
        m.d.comb += scaled.eq(new >> answered.wavefront.shift)
        m.d.sync += [
            self.score_valid.eq((updates & answered.wavefront.compare) | prefills),
            self.score.entry.eq(Cat(self.row, answered.wavefront.address)),
            self.score.score.eq(clipped - low),
            self.standing.eq(
                answered.standing.as_value() & answered.wavefront.compare.replicate(2)
            ),
            # The slot of a recomputed token holds nothing that would have to be refreshed.
            self.score.valid.eq(~answered.token.recomputed),
        ]
        with m.If(prefills):
            # Until its first score is known, a prefilled token counts as important.
            m.d.sync += [
                self.score.entry.eq(Cat(self.row, self.placing.address)),
                self.score.score.eq((1 << p.score_bits) - 1),
                self.score.valid.eq(~self.placing.token.recomputed),
            ]


class SlotTable(Unit):
    """All rows, chained as the evictor's are.

    A wavefront is presented twice: its address when it is accepted (`accept`), so that row 0 is
    read, and the whole of it when it goes down the rows (`strobe`).

    **Latency** row i's state is there i cycles after `strobe`; its score i + 2 cycles after.
    **Throughput** one wavefront a cycle; wavefronts with `compare` at least `rows` cycles apart, so
    that one row at a time has a score update for the refresh controllers.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions.

    Members
    -------
    accept, accept_address : In
        Read row 0 for the next wavefront.
    strobe, wavefront : In
        A wavefront at row 0.
    oldest, leaving, promoted : In
        As in `SlotRow`.
    states : Out(ArrayLayout(state, rows))
        What each evictor row is told.
    updates : In(ArrayLayout(update, rows))
        What each evictor row answers.
    place, place_row, placing : In
        Write a token; not into a row that is `marked`.
    marked : Out(rows)
        Rows that mark a promoted token in this cycle.
    lookup, lookup_address : In
        Show a tile.
    tokens : Out(ArrayLayout(token, rows))
        What its slots hold, a cycle later.
    score, score_valid, standing : Out
        Score updates for the refresh controllers, and what their tokens are in the head.
    peak, peak_valid, peak_head : Out
        Magnitudes of all importances that a head's last search saw, or-ed.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        rows = p.evictor.rows
        super().__init__(
            {
                "accept": In(1),
                "accept_address": In(p.address_bits),
                "strobe": In(1),
                "wavefront": In(p.pass_layout),
                "oldest": In(p.position_bits),
                "leaving": In(p.position_bits),
                "promoted": In(p.promoted_layout),
                "states": Out(data.ArrayLayout(p.state_layout, rows)),
                "updates": In(data.ArrayLayout(p.evictor.update_layout, rows)),
                "place": In(1),
                "place_row": In(p.evictor.row_bits),
                "placing": In(p.placing_layout),
                "marked": Out(rows),
                "lookup": In(1),
                "lookup_address": In(p.address_bits),
                "tokens": Out(data.ArrayLayout(p.token_layout, rows)),
                "score": Out(p.score_layout),
                "score_valid": Out(1),
                "standing": Out(p.standing_layout),
                "peak": Out(p.evictor.score_width - 1),
                "peak_valid": Out(1),
                "peak_head": Out(p.head_bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Chain the rows; join what comes out of them."""
        m = Module()
        p = self.parameters
        strobe, wavefront = self.strobe, self.wavefront
        # A row is read in the cycle in which the wavefront is in the row above.
        read_strobe, read_address = self.accept, self.accept_address
        peak = Signal(p.evictor.score_width - 1)
        m.d.comb += peak.eq(0)
        rows = []
        for i in range(p.evictor.rows):
            m.submodules[f"row_{i}"] = row = SlotRow(parameters=p)
            rows.append(row)
            m.d.comb += [
                row.row.eq(i),
                row.read_strobe.eq(read_strobe),
                row.read_address.eq(read_address),
                row.strobe_in.eq(strobe),
                row.pass_in.eq(wavefront),
                row.oldest.eq(self.oldest),
                row.leaving.eq(self.leaving),
                row.promoted.eq(self.promoted),
                self.states[i].eq(row.state),
                row.update.eq(self.updates[i]),
                row.peak_in.eq(peak),
                row.placing.eq(self.placing),
                row.place.eq(self.place & (self.place_row == i)),
                row.lookup.eq(self.lookup),
                row.lookup_address.eq(self.lookup_address),
                self.tokens[i].eq(row.token),
            ]
            read_strobe, read_address = strobe, wavefront.address
            strobe, wavefront, peak = row.strobe_out, row.pass_out, row.peak_out

        # At most one row has a score update in a cycle: an or of what each has if it is valid.
        width = 1 + Shape.cast(p.score_layout).width
        updates = [
            Cat(row.score_valid, row.score) & row.score_valid.replicate(width) for row in rows
        ]
        while len(updates) > 1:
            updates = [a | b for a, b in zip(updates[::2], updates[1::2], strict=True)]
        m.d.comb += [
            Cat(self.score_valid, self.score).eq(updates[0]),
            self.standing.eq(reduce(or_, (row.standing.as_value() for row in rows))),
            self.marked.eq(Cat(row.marked for row in rows)),
        ]
        self._gather_peaks(m, strobe, wavefront, peak)
        return m

    def _gather_peaks(self, m: Module, strobe: Value, wavefront: data.View, peak: Value) -> None:
        """Or the magnitudes of all tiles of a search.

        The chain of peaks is one cycle behind the wavefronts.
        """
        p = self.parameters
        ended = Signal()
        end = Signal(p.pass_layout, reset_less=True)
        peaks = Signal(p.evictor.score_width - 1, reset_less=True)
        m.d.sync += [ended.eq(strobe), end.eq(wavefront)]
        # A search's first tile begins anew.
        fresh_search = Signal(init=1)
        together = Mux(fresh_search, 0, peaks) | peak
        with m.If(ended & end.compare & ~end.alone):
            m.d.sync += [peaks.eq(together), fresh_search.eq(end.last)]
        m.d.comb += [
            self.peak.eq(together),
            self.peak_valid.eq(ended & end.compare & end.last & ~end.alone),
            self.peak_head.eq(end.head),
        ]
