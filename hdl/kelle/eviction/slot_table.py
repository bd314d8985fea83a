"""Kelle's slot table: the record of each slot of the cache, one table row per evictor row.

Sections 4.1 and 5.1. Slots are not ordered, since attention does not depend on the order of keys;
the table therefore stores the position of each slot's token. The table processes the evictor's
wavefronts in parallel with the evictor, one row per cycle.
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
    """The wavefront whose new importance the evictor outputs in this cycle, and its slot."""

    wavefront: data.View
    takes_part: Signal  # The slot holds a token, or receives the arriving token.
    standing: data.View  # Status of the token in its head.
    token: data.View
    marked: Signal  # The token was promoted in the previous step; its record is updated now.


class SlotRow(Unit):
    """The slots of one evictor row, of all tiles and heads.

    The unit reads a slot in the cycle before the evictor's row uses it, and writes it back in the
    cycle after. Positions are stored twice, for wavefronts and for lookups, so that neither waits.

    **Latency** 1 cycle from `read_strobe` to `state`, and from `lookup` to `token`.
    **Throughput** one wavefront a cycle.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    row : In
        Number of the row, a constant of the instance.
    read_strobe, read_address : In
        Read the slot of the next wavefront; not repeated while a wavefront waits.
    strobe_in, pass_in : In
        The wavefront that uses the slot in this cycle.
    strobe_out, pass_out : Out
        The same, one cycle later.
    oldest : In(position)
        Lowest position in the recent window.
    leaving : In(position)
        Position that has just left the recent window.
    promoted : In(promoted)
        A token that is marked as recomputed when a wavefront passes it.
    state : Out(state)
        State of the slot for the evictor's row.
    update : In
        New importance, from the evictor's row.
    peak_in, peak_out : In, Out
        Bitwise or of the magnitudes of importance in the rows above; the same with this row's.
    placing, place : In
        Write a token; not while `marked`.
    marked : Out(1)
        A promoted token is marked in this cycle, which uses the only write port.
    lookup, lookup_address : In
        Look up a slot.
    token : Out(token)
        Record of the slot, one cycle after `lookup`.
    score, score_valid : Out
        Score update of a slot for the refresh controllers.
    standing : Out(standing)
        Status of the score's token in its head, if the score belongs to a search.
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
        """Read the slot, derive its state for the evictor, and write it back."""
        m = Module()
        p = self.parameters
        depth = max(p.cached_heads * p.tiles, 2)
        token_width = Shape.cast(p.token_layout).width
        # Positions are stored twice, since lookups occur at any time and wavefronts cannot wait.
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

        # Updates and prefills never occur in the same cycle, so that one write port suffices.
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
        # Marking has priority: the arriving token can wait, the wavefront cannot.
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
        """Derive the slot's state for the evictor; register it for the update one cycle later."""
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
            # A slot of the arriving token is treated as empty: its importance starts from zero.
            self.state.valid.eq(resident & ~fresh),
            self.state.protect.eq(p.is_sink(held.position) | (held.position >= self.oldest)),
        ]
        # The token that has just left the window may be evicted.
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
        # The slots of a promoted token are marked when the next step's wavefronts pass them.
        with m.If(is_promoted):
            m.d.sync += [
                answered.token.recomputed.eq(1),
                answered.token.vector.eq(self.promoted.vector),
            ]
        return answered

    def _export_score(
        self, m: Module, answered: Answered, updates: Signal, prefills: Value
    ) -> None:
        """Reduce an importance to a coarse score; include its magnitude in the chain of peaks."""
        p = self.parameters
        width = p.evictor.score_width
        new = self.update.importance
        # The magnitude of a number in two's complement, less 1 if negative: its bits, or their
        # inverse.
        folded = (new ^ new[-1].replicate(width))[: width - 1]
        m.d.sync += self.peak_out.eq(self.peak_in | Mux(updates, folded, 0))

        # The most significant bits, in offset binary if importances are signed.
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
            # The entry of a recomputed token holds no data and needs no refresh.
            self.score.valid.eq(~answered.token.recomputed),
        ]
        with m.If(prefills):
            # A prefilled token has the highest score until its first score is computed.
            m.d.sync += [
                self.score.entry.eq(Cat(self.row, self.placing.address)),
                self.score.score.eq((1 << p.score_bits) - 1),
                self.score.valid.eq(~self.placing.token.recomputed),
            ]


class SlotTable(Unit):
    """The chain of all slot rows, parallel to the evictor's rows.

    A wavefront is presented twice: its address when it is accepted (`accept`), to read row 0, and
    its whole header when it starts (`strobe`).

    **Latency** row i's state is valid i cycles after `strobe`, its score i + 2 cycles after.
    **Throughput** one wavefront per cycle; wavefronts with `compare` at least `rows` cycles apart,
    so that at most one row per cycle has a score update for the refresh controllers.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    accept, accept_address : In
        Read row 0 for the next wavefront.
    strobe, wavefront : In
        A wavefront at row 0.
    oldest, leaving, promoted : In
        As in `SlotRow`.
    states : Out(ArrayLayout(state, rows))
        State of the slot for each evictor row.
    updates : In(ArrayLayout(update, rows))
        New importance from each evictor row.
    place, place_row, placing : In
        Write a token; not into a row that is `marked`.
    marked : Out(rows)
        Rows that mark a promoted token in this cycle.
    lookup, lookup_address : In
        Look up a tile.
    tokens : Out(ArrayLayout(token, rows))
        Records of the tile's slots, one cycle after `lookup`.
    score, score_valid, standing : Out
        Score updates for the refresh controllers, and the status of their tokens in the head.
    peak, peak_valid, peak_head : Out
        Bitwise or of the magnitudes of all importances in a head's last search.
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
        """Chain the rows, and merge their outputs."""
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

        # At most one row has a score update per cycle: an or of the valid updates merges them.
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
        """Merge the magnitudes of all tiles of a search by a bitwise or.

        The chain of peaks lags the wavefronts by one cycle.
        """
        p = self.parameters
        ended = Signal()
        end = Signal(p.pass_layout, reset_less=True)
        peaks = Signal(p.evictor.score_width - 1, reset_less=True)
        m.d.sync += [ended.eq(strobe), end.eq(wavefront)]
        # The first tile of a search starts from zero.
        fresh_search = Signal(init=1)
        together = Mux(fresh_search, 0, peaks) | peak
        with m.If(ended & end.compare & ~end.alone):
            m.d.sync += [peaks.eq(together), fresh_search.eq(end.last)]
        m.d.comb += [
            self.peak.eq(together),
            self.peak_valid.eq(ended & end.compare & end.last & ~end.alone),
            self.peak_head.eq(end.head),
        ]
