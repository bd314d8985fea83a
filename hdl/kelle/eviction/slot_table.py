"""Kelle's slot table: the record of each slot of the cache, one table row per evictor row.

Sections 4.1 and 5.1. Slots are not ordered, since attention does not depend on the order of keys;
the table therefore stores the position of each slot's token. The table processes the evictor's
wavefronts in parallel with the evictor, one row per cycle.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.head_scores import HeadScores, start_ports
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
    placing, place : In
        Write a token; not while `marked`.
    marked : Out(1)
        The only write port is in use: a promoted token is marked in this cycle, or with `centred`
        an importance is updated.
    lookup, lookup_address : In
        Look up a slot.
    token : Out(token)
        Record of the slot, one cycle after `lookup`.
    exported : Out(exported)
        A slot whose score changes, 0 otherwise; valid in the same cycle as `update`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
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
                "placing": In(p.placing_layout),
                "place": In(1),
                "marked": Out(1),
                "lookup": In(1),
                "lookup_address": In(p.address_bits),
                "token": Out(p.token_layout),
                "exported": Out(p.exported_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
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
        m.d.comb += self.pass_out.eq(answered.wavefront)

        # Updates and prefills never occur in the same cycle, so that one write port suffices. With
        # `centred` an arriving token has an importance as well, and waits for updates.
        updates = Signal()
        starts = self.place if p.centred else self.place & self.placing.prefill
        m.d.comb += [
            updates.eq(self.update.valid & answered.takes_part),
            self.marked.eq(answered.marked | updates if p.centred else answered.marked),
            importance.write_enable.eq(updates | starts),
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
        with m.If(updates & answered.wavefront.compare):
            m.d.comb += [
                self.exported.valid.eq(1),
                self.exported.entry.eq(Cat(self.row, answered.wavefront.address)),
                self.exported.importance.eq(self.update.importance),
                # The entry of a recomputed token holds no data and needs no refresh.
                self.exported.holds.eq(~answered.token.recomputed),
                self.exported.searched.eq(~answered.wavefront.alone),
                self.exported.standing.eq(answered.standing),
            ]
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
            resident.eq(wavefront.holds),
            fresh.eq(wavefront.arrives),
            # A slot of the arriving token is treated as empty: its importance starts from zero.
            # With `centred` it starts from the importance that was placed with the token.
            self.state.valid.eq(resident | fresh if p.centred else resident & ~fresh),
            self.state.protect.eq(p.is_sink(held.position) | (held.position >= self.oldest)),
        ]
        # The token that has just left the window may be evicted.
        evictable = self.strobe_in & self.state.valid & ~self.state.protect
        m.d.sync += [
            self.strobe_out.eq(self.strobe_in),
            answered.wavefront.eq(wavefront),
            # Those of the row below; the paths from them extend into the evictor's row.
            answered.wavefront.holds.eq(self.row + 1 < wavefront.resident),
            answered.wavefront.arrives.eq(wavefront.fresh & (self.row + 1 == wavefront.row)),
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


class SlotTable(Unit):
    """The chain of all slot rows, parallel to the evictor's rows.

    A wavefront is presented twice: its address when it is accepted (`accept`), to read row 0, and
    its whole header when it starts (`strobe`).

    **Latency** row i's state is valid i cycles after `strobe`, its score i + 3 cycles after.
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
    strobe, wavefront, cached_head : In
        A wavefront at row 0, and its head's number among those of all layers.
    oldest, leaving, promoted : In
        As in `SlotRow`.
    states : Out(ArrayLayout(state, rows))
        State of the slot for each evictor row.
    updates : In(ArrayLayout(update, rows))
        New importance from each evictor row.
    place, place_row, placing : In
        Write a token; not into a row that is `marked`.
    marked : Out(rows)
        Rows whose write port is in use in this cycle.
    forgets, forgotten : In
        As in `HeadScores`.
    start_lookup, start_head, start : In, Out
        As in `HeadScores`.
    lookup, lookup_address : In
        Look up a tile.
    tokens : Out(ArrayLayout(token, rows))
        Records of the tile's slots, one cycle after `lookup`.
    score, score_valid, standing : Out
        Score updates for the refresh controllers, and the status of their tokens in the head.
    searched, searched_head : Out
        The search of a head of the layer ends with the current score.
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
                "cached_head": In(p.cached_head_bits),
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
                "searched": Out(1),
                "searched_head": Out(p.head_bits),
                "forgets": In(1),
                "forgotten": In(p.cached_head_bits),
                **start_ports(p),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Chain the rows, and merge their outputs."""
        m = Module()
        p = self.parameters
        strobe, wavefront = self.strobe, self.wavefront
        # A row is read in the cycle in which the wavefront is in the row above.
        read_strobe, read_address = self.accept, self.accept_address
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
                row.placing.eq(self.placing),
                row.place.eq(self.place & (self.place_row == i)),
                row.lookup.eq(self.lookup),
                row.lookup_address.eq(self.lookup_address),
                self.tokens[i].eq(row.token),
            ]
            read_strobe, read_address = strobe, wavefront.address
            strobe, wavefront = row.strobe_out, row.pass_out
        m.d.comb += self.marked.eq(Cat(row.marked for row in rows))
        # The last row's importance is one cycle later than its wavefront, its score two.
        ended = Signal()
        ends = strobe & wavefront.compare & wavefront.last & ~wavefront.alone
        m.d.sync += [ended.eq(ends), self.searched.eq(ended)]
        m.d.comb += self.searched_head.eq(
            delay_line(m, wavefront.head, 2, name="searched_head")[-1]
        )
        self._export_scores(m, [row.exported.as_value() for row in rows], ended)
        return m

    def _export_scores(self, m: Module, rows: list[Value], ended: Signal) -> None:
        """Convert the importance of the one slot whose score changes, or of a prefilled token.

        `ended` is 1 in the cycle of the last importance of a search.
        """
        p = self.parameters
        m.submodules.head_scores = head_scores = HeadScores(parameters=p)
        # At most one row has a score update per cycle: an or merges them.
        while len(rows) > 1:
            rows = [a | b for a, b in zip(rows[::2], rows[1::2], strict=True)]
        exported = Signal(p.exported_layout)
        m.d.sync += exported.eq(rows[0])
        with m.If(self.place & self.placing.prefill):
            m.d.sync += [
                exported.valid.eq(1),
                exported.entry.eq(Cat(self.place_row, self.placing.address)),
                exported.holds.eq(~self.placing.token.recomputed),
                exported.searched.eq(0),
            ]
        scored = Signal(p.exported_layout)
        m.d.sync += scored.eq(exported)
        m.d.comb += [
            head_scores.begins.eq(self.strobe & self.wavefront.compare),
            head_scores.head.eq(self.cached_head),
            head_scores.exported.eq(exported),
            head_scores.ends.eq(ended),
            head_scores.forgets.eq(self.forgets),
            head_scores.forgotten.eq(self.forgotten),
            self.score_valid.eq(scored.valid),
            self.score.entry.eq(scored.entry),
            self.score.score.eq(head_scores.score),
            self.score.valid.eq(scored.holds),
            self.standing.eq(Mux(scored.searched, scored.standing, 0)),
        ]
        if p.resident_heads is not None:
            # Slots in off-chip memory have no entry.
            stored = scored.entry < p.stored_heads * p.evictor.slots
            m.d.comb += self.score_valid.eq(scored.valid & stored)
        if p.centred:
            m.d.comb += [
                head_scores.start_lookup.eq(self.start_lookup),
                head_scores.start_head.eq(self.start_head),
                self.start.eq(head_scores.start),
            ]
