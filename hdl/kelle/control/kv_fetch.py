"""The KV fetch: blocks of keys or values for the array, read from the eDRAM or just computed.

Section 6 of the paper: keys and values are fetched in parallel with the weights. Section 4.1:
recomputed keys and values are never read from the eDRAM. The unit also writes the arriving token's
key and value into the slot of its victim: the key when the token's own score is computed, the value
when the attention has used the victim's value.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.control.block_stager import BlockStager
from hdl.kelle.edram.kv_edram import SIDES, row_of
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class State(enum.Enum, shape=3):
    """State of the fetch."""

    IDLE = 0
    LOOKUP = 1
    LATCH = 2
    ROWS = 3
    OWN_READ = 4
    OWN_WRITE = 5
    OWN_ROWS = 6


class Source(enum.Enum, shape=2):
    """Source of a row."""

    EDRAM = 0
    COMPUTED = 1
    NOWHERE = 2


@dataclass(frozen=True)
class Walk:
    """Registers of the position in an operation."""

    state: enum.EnumView
    sequence: Signal
    head: Signal
    side: Signal  # Keys or values, as in `SIDES`.
    tile: Signal
    word: Signal  # Row of the eDRAM within an entry.
    row: Signal  # Slot within the tile.
    begun: Signal  # The stager has reserved room for the block.


@dataclass(frozen=True)
class Ahead:
    """Lookup of the next tile while the last rows of the current tile are read."""

    wants: Signal  # A lookup is requested in this cycle.
    asked: Signal  # The response is valid in this cycle.
    latched: Signal  # The formats are those of the next tile; `tail` has the last two of this one.


@dataclass(frozen=True)
class Chosen:
    """Source of the current row, and the vector for which a computed row was computed."""

    source: enum.EnumView
    vector: Signal


class KvFetch(Unit):
    """Deliver the blocks of each operation, `rows` tokens by one eDRAM row, as beats of loads.

    An empty slot gives zeros. A slot whose token is recomputed gives the row that was computed in
    this step. All rows of the arriving token's block hold its row, so that the load does not depend
    on the token's slot.

    **Latency** 4 cycles from an operation to its first row, and those of `BlockStager`.
    **Throughput** one row per cycle; the fetch waits for urgent refreshes.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    layer : In
        Layer of the step.
    operations : In(stream)
        `SCORE`, `OWN` or `ATTEND` of a head, whose keys or values are available.
    computed_keys, computed_values : In
        A slice of a computed key or value: `vector`, `head`, `part`, `values`.
    residents : In
        For each head of all sequences, the number of slots that hold a token.
    placements : In
        For each head of all sequences, the recorded placement of the arriving token.
    lookup_request : Out(stream), lookup_response : In
        Lookups of the slot table, as in `EvictionController`.
    keys_read, values_read, keys_write, values_write : Out(stream)
        Reads and writes of the eDRAM, as in `KvEdram`.
    keys, values : In
        Rows read from the eDRAM.
    beats : Out(stream)
        Beats of the array's loads.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        ports: dict[str, Any] = {
            "layer": In(p.layer_bits),
            "operations": In(stream.Signature(p.operation_layout)),
            **{f"computed_{side}": In(p.computed_layout) for side in SIDES},
            "residents": In(data.ArrayLayout(bits_for(p.slots), p.items)),
            "placements": In(data.ArrayLayout(p.placement_layout, p.items)),
            "lookup_request": Out(stream.Signature(p.eviction.address_bits)),
            "lookup_response": In(data.ArrayLayout(p.eviction.token_layout, p.rows)),
            "beats": Out(stream.Signature(p.array.array.weights_layout)),
        }
        for side in SIDES:
            ports |= {
                f"{side}_read": Out(stream.Signature(edram.address_bits)),
                side: In(edram.row_layout),
                f"{side}_write": Out(stream.Signature(edram.write_layout)),
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        """Loop over tiles, eDRAM rows of an entry, and slots."""
        m = Module()
        p = self.parameters
        m.submodules.stager = stager = BlockStager(parameters=p)
        # The position; the formats of the tile's slots have registers of their own.
        walk = Walk(
            state=Signal(State),
            sequence=Signal(p.sequence_bits, reset_less=True),
            head=Signal(p.eviction.head_bits, reset_less=True),
            side=Signal(reset_less=True),
            tile=Signal(range(p.tiles + 1)),
            word=Signal(range(max(p.memory.edram.entry_words, 2))),
            row=Signal(range(p.rows)),
            begun=Signal(),
        )
        slot = Signal(range(p.slots))
        item = p.item(walk.sequence, walk.head)
        placement = Array(self.placements[n] for n in range(p.items))[item]
        formats = Array(
            Signal(p.eviction.token_layout, name=f"format_{i}", reset_less=True)
            for i in range(p.rows)
        )
        m.d.comb += slot.eq(Cat(walk.row, walk.tile))
        ahead = Ahead(wants=Signal(), asked=Signal(), latched=Signal())
        # Copies of the last two rows' formats, which are read after the others are overwritten.
        tail = Array(
            Signal(p.eviction.token_layout, name=f"tail_{i}", reset_less=True) for i in range(2)
        )
        format_ = Mux(
            ahead.latched,
            Array(token.as_value() for token in tail)[walk.row[0]],
            Array(token.as_value() for token in formats)[walk.row],
        )
        chosen = self._choose_source(m, walk, slot, format_, placement)

        # The first row of a block reserves room for all of its rows.
        room = walk.begun | stager.room
        ready = Mux(walk.side, self.values_read.ready, self.keys_read.ready)
        from_edram = chosen.source == Source.EDRAM
        issues, own = Signal(name="issues"), Signal(name="own")
        m.d.comb += [
            issues.eq((walk.state == State.ROWS) & room & (~from_edram | ready)),
            own.eq((walk.state == State.OWN_READ) & stager.room),
            stager.take.eq((issues & ~walk.begun) | own),
            self.lookup_request.valid.eq((walk.state == State.LOOKUP) | ahead.wants),
            self.lookup_request.payload.eq(
                p.eviction.cached_head(p.cache(self.layer, walk.sequence), walk.head) * p.tiles
                + Mux(ahead.wants, walk.tile + 1, walk.tile)
            ),
            self.operations.ready.eq(walk.state == State.IDLE),
        ]
        connect_streams(m, stager.beats, self.beats)

        computed = self._read_computed(m, walk, chosen, issues, own)
        self._access_edram(m, walk, chosen.source, room, slot, placement, computed)
        self._hand_on(m, walk, stager, chosen.source, issues, computed)
        self._sequence(m, walk, ahead, formats, issues, own)
        self._look_ahead(m, walk, ahead, formats, tail, issues)
        return m

    def _choose_source(
        self, m: Module, walk: Walk, slot: Signal, format_: Any, placement: Any
    ) -> Chosen:
        """Select the source of the current row.

        The victim of this step takes part in the attention, although its slot is already assigned
        to the arriving token.
        """
        p = self.parameters
        chosen = Chosen(source=Signal(Source), vector=Signal(bits_for(p.members - 1)))
        item = p.item(walk.sequence, walk.head)
        residents = Array(self.residents[n] for n in range(p.items))[item]
        held = Signal(p.eviction.token_layout)
        is_victim = walk.side & placement.recomputed & (slot == placement.slot)
        m.d.comb += [
            held.eq(format_),
            chosen.vector.eq(
                walk.sequence * p.vectors + Mux(is_victim, placement.vector, held.vector)
            ),
        ]
        # An empty slot must give zeros: its row of the eDRAM is undefined.
        with m.If(slot >= residents):
            m.d.comb += chosen.source.eq(Source.NOWHERE)
        with m.Elif(is_victim | held.recomputed):
            m.d.comb += chosen.source.eq(Source.COMPUTED)
        return chosen

    def _read_computed(
        self, m: Module, walk: Walk, chosen: Chosen, issues: Signal, own: Signal
    ) -> list[Value]:
        """Store the rows computed in this step; return the rows read, of keys and of values."""
        p = self.parameters
        edram = p.memory.edram
        rows = []
        for number, name in enumerate(SIDES):
            arrives = getattr(self, f"computed_{name}")
            memory = Memory(
                depth=p.members * p.kv_heads * edram.entry_words,
                width=16 * edram.row_channels,
                granularity=p.slice_layout.size,
            )
            m.submodules[f"computed_{name}"] = memory
            # The arriving tokens' vectors follow all stored vectors.
            vector = Mux(own, p.stored + walk.sequence, chosen.vector)
            selected = walk.side == number
            m.d.comb += [
                memory.read_enable.eq(
                    selected & (own | (issues & (chosen.source == Source.COMPUTED)))
                ),
                memory.read_address.eq(self._computed_address(vector, walk.head) + walk.word),
                memory.write_address.eq(
                    self._computed_address(arrives.vector, arrives.head)
                    + arrives.part // p.row_slices
                ),
                # A row is written slice by slice: the slice is replicated, and one copy is enabled.
                memory.write_data.eq(arrives["values"].as_value().replicate(p.row_slices)),
                memory.write_enable.eq(arrives.strobe << arrives.part % p.row_slices),
            ]
            channels = [memory.read_data.word_select(c, 16) for c in range(edram.row_channels)]
            rows.append(row_of(edram, channels))
        return rows

    def _access_edram(
        self,
        m: Module,
        walk: Walk,
        source: enum.EnumView,
        room: Value,
        slot: Signal,
        placement: Any,
        computed: list[Value],
    ) -> None:
        """Read the current slot's row, or write the arriving token's over its victim's."""
        p = self.parameters
        words = p.memory.edram.entry_words
        # Keys and values have the same address, each on its side.
        cache = p.cache(self.layer, walk.sequence)
        first = p.eviction.cached_head(cache, walk.head) * p.slots
        for number, name in enumerate(SIDES):
            selected = walk.side == number
            read, write = getattr(self, f"{name}_read"), getattr(self, f"{name}_write")
            m.d.comb += [
                read.valid.eq(
                    selected & room & (walk.state == State.ROWS) & (source == Source.EDRAM)
                ),
                read.payload.eq((first + slot) * words + walk.word),
                write.valid.eq(selected & (walk.state == State.OWN_WRITE)),
                write.payload.address.eq((first + placement.slot) * words + walk.word),
                write.payload.row.eq(computed[number]),
            ]

    def _hand_on(
        self,
        m: Module,
        walk: Walk,
        stager: BlockStager,
        source: enum.EnumView,
        issues: Signal,
        computed: list[Value],
    ) -> None:
        """Write a row into the stager in the cycle after its read, from the source of the read."""
        own_rows = walk.state == State.OWN_ROWS
        came_from = Signal(Source, reset_less=True)
        comes = Signal()
        m.d.sync += [comes.eq(issues), came_from.eq(source)]
        # The outputs of both memories are held: the arriving token's row is valid for all rows.
        is_computed = own_rows | (came_from == Source.COMPUTED)
        nothing = ~own_rows & (came_from == Source.NOWHERE)
        keys, values = (
            Mux(is_computed, row, getattr(self, name).as_value())
            for name, row in zip(SIDES, computed, strict=True)
        )
        m.d.comb += [
            stager.write.strobe.eq(comes | own_rows),
            stager.write.row.eq(Mux(nothing, 0, Mux(walk.side, values, keys))),
        ]

    def _look_ahead(
        self, m: Module, walk: Walk, ahead: Ahead, formats: Array, tail: Array, issues: Signal
    ) -> None:
        """Look up the next tile's slots while the last two rows of a tile are read.

        Tiles then follow each other without idle cycles, unless the slot table is busy.
        """
        p = self.parameters
        last_word = walk.word == p.memory.edram.entry_words - 1
        leaves = issues & last_word & (walk.row == p.rows - 1)
        with m.If(ahead.asked):
            m.d.sync += [tail[i].eq(formats[p.rows - 2 + i]) for i in range(2)]
        m.d.comb += ahead.wants.eq(
            (walk.state == State.ROWS)
            & last_word
            & (walk.row >= p.rows - 2)
            & (walk.tile != p.tiles - 1)
            & ~ahead.asked
            & ~ahead.latched
        )
        m.d.sync += [
            ahead.asked.eq(ahead.wants & self.lookup_request.ready & ~leaves),
            ahead.latched.eq((ahead.latched | ahead.asked) & ~leaves),
        ]

    def _sequence(
        self,
        m: Module,
        walk: Walk,
        ahead: Ahead,
        formats: Array,
        issues: Signal,
        own: Signal,
    ) -> None:
        """Sequence an operation: its tiles, their words, the slots; then the arriving token."""
        p = self.parameters
        state, side, word, row = walk.state, walk.side, walk.word, walk.row
        offered = self.operations.payload
        last_row = row == p.rows - 1
        last_word = word == p.memory.edram.entry_words - 1
        next_word = Mux(last_word, 0, word + 1)
        latches = (state == State.LATCH) | ahead.asked
        with m.If(latches):
            m.d.sync += [formats[i].eq(self.lookup_response[i]) for i in range(p.rows)]
        with m.Switch(state):
            # The arriving token alone needs no lookup.
            with m.Case(State.IDLE):
                m.d.sync += [
                    walk.sequence.eq(offered.sequence),
                    walk.head.eq(offered.head),
                    side.eq(offered.operation == Operation.ATTEND),
                    walk.tile.eq(0),
                ]
                with m.If(self.operations.valid):
                    is_own = offered.operation == Operation.OWN
                    m.d.sync += state.eq(Mux(is_own, State.OWN_READ, State.LOOKUP))
            # The tokens of a tile's slots determine the sources of their rows.
            with m.Case(State.LOOKUP):
                with m.If(self.lookup_request.ready):
                    m.d.sync += state.eq(State.LATCH)
            # The response is held, so that others may look up while the rows are read.
            with m.Case(State.LATCH):
                m.d.sync += state.eq(State.ROWS)
            # A block is one word of the entries of all slots of a tile.
            with m.Case(State.ROWS):
                with m.If(issues):
                    m.d.sync += [walk.begun.eq(row != p.rows - 1), row.eq(row + 1)]
                    with m.If(last_row):
                        m.d.sync += word.eq(next_word)
                        with m.If(last_word):
                            self._leave_tile(m, walk, ahead)
            with m.Case(State.OWN_READ):
                with m.If(own):
                    m.d.sync += state.eq(State.OWN_WRITE)
            # The row is also written into the token's slot.
            with m.Case(State.OWN_WRITE):
                with m.If(Mux(side, self.values_write.ready, self.keys_write.ready)):
                    m.d.sync += state.eq(State.OWN_ROWS)
            # The same row is written for the whole block, independent of the token's slot.
            with m.Case(State.OWN_ROWS):
                m.d.sync += row.eq(row + 1)
                with m.If(last_row):
                    m.d.sync += [
                        word.eq(next_word),
                        state.eq(Mux(last_word, State.IDLE, State.OWN_READ)),
                    ]

    def _leave_tile(self, m: Module, walk: Walk, ahead: Ahead) -> None:
        """Advance to the next tile, whose slots may have been looked up, or end the tiles."""
        granted = ahead.wants & self.lookup_request.ready
        asked = Mux(granted, State.LATCH, State.LOOKUP)
        there = ahead.latched | ahead.asked
        m.d.sync += [walk.tile.eq(walk.tile + 1), walk.state.eq(Mux(there, State.ROWS, asked))]
        # With scores, the arriving token has an operation of its own.
        with m.If(walk.tile == self.parameters.tiles - 1):
            m.d.sync += walk.state.eq(Mux(walk.side, State.OWN_READ, State.IDLE))

    def _computed_address(self, vector: Value, head: Value) -> Value:
        """Return the first word of a token's computed key or value."""
        return (vector * self.parameters.kv_heads + head) * self.parameters.memory.edram.entry_words
