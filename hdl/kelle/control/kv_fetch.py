"""The KV fetch: blocks of keys or values for the array, read from the eDRAM or just computed.

Section 6 of the paper: keys and values are fetched in parallel with the weights. Section 4.1:
recomputed keys and values are never read from the eDRAM. The unit also writes the arriving token's
key and value into the slot of its victim: the key when the token's own score is computed, the value
when the attention has used the victim's value.
"""

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import bits_for

from hdl.arith.delay_line import delay_line
from hdl.kelle.control.block_stager import BlockStager
from hdl.kelle.control.computed_rows import ComputedRows
from hdl.kelle.control.overflow_reads import OverflowReads
from hdl.kelle.control.slot_formats import SlotFormats
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class Source(enum.Enum, shape=2):
    """Source of a slot's row."""

    EDRAM = 0
    COMPUTED = 1
    NOWHERE = 2


@dataclass(frozen=True)
class Place:
    """Position in an operation: nested loops over tiles, words and slots."""

    token: Signal  # The arriving token that attends.
    sequence: Signal  # Its sequence.
    head: Signal
    side: Signal  # Keys or values, as in `SIDES`.
    tile: Signal
    word: Signal  # Row of the eDRAM within an entry.
    row: Signal  # Slot within the tile.
    slot: Signal  # Slot of the head, given by `tile` and `row`.
    residents: Signal  # Slots of the head that hold a token, without the arriving one.
    far: Signal  # With `overflow`: keys and values of the head are in off-chip memory.


@dataclass(frozen=True)
class Action:
    """What happens in a cycle."""

    wants_slot: Signal  # The current slot's row can be read, if it is available.
    reads_slot: Signal  # It is read.
    reads_own: Signal  # The arriving token's row is read.
    stores_own: Signal  # It is offered to the eDRAM.
    repeats_own: Signal  # It is delivered once more.


@dataclass(frozen=True)
class Chosen:
    """Source of the current slot's row, and the input vector that a computed row is from."""

    source: enum.EnumView
    vector: Signal


def overflow_ports(p: KelleParameters) -> dict[str, Member]:
    """Return the ports to the off-chip memory for heads that are not in the eDRAM."""
    if not p.overflow:
        return {}
    row = p.memory.edram.row_layout
    write = data.StructLayout({**p.overflow_layout.members, "row": row})
    return {
        "overflow_reads": Out(stream.Signature(p.overflow_layout)),
        "overflow_rows": In(stream.Signature(row)),
        "overflow_writes": Out(stream.Signature(write)),
    }


class KvFetch(Unit):
    """Deliver the blocks of each operation, `rows` tokens by one eDRAM row, as beats of loads.

    An empty slot gives zeros. A slot whose token is recomputed gives the row that was computed in
    this step. All rows of the arriving token's block hold its row, so that the load does not depend
    on the token's slot.

    **Latency** 3 cycles and `read_cycles` of the eDRAM from an operation to its first row, and
    those of `BlockStager`.
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
        As in `ComputedRows`.
    sequences, listed : In
        Sequence of each arriving token; for each stored vector of the layer, whether its token is
        recomputed in this step, as in `StepControl`.
    filled : In
        Slots in use of each head, as in `EvictionController`. They are constant while a head's
        scores are fetched, since its next token is placed after the search.
    placements : In
        For each head and token, the recorded placement of the arriving token.
    lookup_request : Out(stream), lookup_response : In
        Lookups of the slot table, as in `EvictionController`.
    keys_read, values_read, keys_write, values_write : Out(stream)
        Reads and writes of the eDRAM, as in `KvEdram`.
    keys, values : In
        Rows read from the eDRAM.
    overflow_reads, overflow_rows, overflow_writes : Out(stream), In(stream), Out(stream)
        With `overflow`, places of rows to read from off-chip memory; these rows in order; rows to
        write. A read gives what the latest write transferred before it wrote.
    beats : Out(stream)
        Beats of the array's loads.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "operations": In(stream.Signature(p.operation_layout)),
                **{f"computed_{side}": In(p.computed_layout) for side in SIDES},
                "sequences": In(p.sequences_layout),
                "listed": In(p.layer_vectors),
                "filled": In(data.ArrayLayout(bits_for(p.slots), p.eviction.cached_heads)),
                "placements": In(data.ArrayLayout(p.placement_layout, p.token_heads)),
                "lookup_request": Out(stream.Signature(p.eviction.address_bits)),
                "lookup_response": In(data.ArrayLayout(p.eviction.token_layout, p.rows)),
                "beats": Out(stream.Signature(p.array.array.weights_layout)),
                **{f"{side}_read": Out(stream.Signature(edram.address_bits)) for side in SIDES},
                **{side: In(edram.row_layout) for side in SIDES},
                **{f"{side}_write": Out(stream.Signature(edram.write_layout)) for side in SIDES},
                **overflow_ports(p),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the formats of the slots, the computed rows and the stager."""
        m = Module()
        p = self.parameters
        m.submodules.formats = formats = SlotFormats(parameters=p)
        m.submodules.computed = computed = ComputedRows(parameters=p)
        m.submodules.stager = stager = BlockStager(parameters=p)
        place = Place(
            token=Signal(p.token_shape, reset_less=True),
            sequence=Signal(max(p.sequence_bits, 1), reset_less=True),
            head=Signal(p.eviction.head_bits, reset_less=True),
            side=Signal(reset_less=True),
            tile=Signal(range(p.cache_tiles + 1)),
            word=Signal(range(max(p.memory.edram.entry_words, 2))),
            row=Signal(range(p.rows)),
            slot=Signal(range(p.slots)),
            far=Signal(name="far"),
            residents=Signal(bits_for(p.slots), name="residents"),
        )
        m.d.comb += [
            place.slot.eq(Cat(place.row, place.tile)),
            formats.listed.eq(self.listed.word_select(place.sequence, p.vectors)),
        ]
        # The first tile's formats are valid later than this register.
        before = Signal.like(place.residents, name="before", reset_less=True)
        item = p.token_head(place.token, place.head)
        m.d.sync += before.eq(Array(self.filled)[self._cached_head(place)])
        m.d.comb += place.residents.eq(
            Mux(place.side, Array(self.placements)[item].residents, before)
        )
        if p.overflow:
            m.d.comb += place.far.eq(self._cached_head(place) >= p.resident_heads)
        action = Action(
            wants_slot=Signal(name="wants_slot"),
            reads_slot=Signal(name="reads_slot"),
            reads_own=Signal(name="reads_own"),
            stores_own=Signal(name="stores_own"),
            repeats_own=Signal(name="repeats_own"),
        )
        tiles = self._tiles(m, place, formats)
        self._sequence(m, place, action, formats, tiles, stager)
        connect_streams(m, formats.lookup_request, self.lookup_request)
        connect_streams(m, stager.beats, self.beats)
        m.d.comb += formats.lookup_response.eq(self.lookup_response)

        chosen = self._choose_source(m, place, tiles)
        from_edram = chosen.source == Source.EDRAM
        ready = Mux(place.side, self.values_read.ready, self.keys_read.ready)
        if p.overflow:
            ready = Mux(place.far, self.overflow_rows.valid, ready)
        # All rows are delivered in the order of their reads, a row of the eDRAM after
        # `read_cycles`. The read of a computed row, which takes one cycle, waits for the others.
        read, following = Signal(self._read_layout()), Signal(self._read_layout())
        waits = p.memory.edram.read_cycles - 1
        m.d.comb += [
            action.reads_slot.eq(action.wants_slot & (~from_edram | ready)),
            read.slot.eq(action.reads_slot),
            read.own.eq(action.reads_own),
            read.source.eq(chosen.source),
            read.side.eq(place.side),
            # The arriving tokens' vectors follow all stored vectors.
            read.vector.eq(Mux(action.reads_own, p.layer_vectors + place.token, chosen.vector)),
            read.head.eq(place.head),
            read.word.eq(place.word),
            read.far.eq(place.far),
            following.eq(delay_line(m, read, waits, name="read", reset=True)[-1]),
            computed.computed_keys.eq(self.computed_keys),
            computed.computed_values.eq(self.computed_values),
            computed.read.strobe.eq(
                following.own | (following.slot & (following.source == Source.COMPUTED))
            ),
            computed.read.side.eq(following.side),
            computed.read.vector.eq(following.vector),
            computed.read.head.eq(following.head),
            computed.read.word.eq(following.word),
        ]
        self._access_edram(m, place, action, from_edram, computed)
        delivered = delay_line(m, following, 1, name="delivered", reset=True)[-1]
        if p.overflow:
            m.d.comb += self.overflow_rows.ready.eq(action.wants_slot & from_edram & place.far)
            payload = self.overflow_rows.payload
            far_row = delay_line(m, payload, waits + 1, name="far_row")[-1]

        # The computed rows hold their output, so that it is valid for all rows of the arriving
        # token's block.
        m.d.comb += stager.write.strobe.eq(delivered.slot | action.repeats_own)
        with m.If(action.repeats_own | (delivered.source == Source.COMPUTED)):
            side = Mux(action.repeats_own, place.side, delivered.side)
            m.d.comb += stager.write.row.eq(
                Mux(side, computed.values.as_value(), computed.keys.as_value())
            )
        with m.Elif(delivered.source == Source.EDRAM):
            m.d.comb += stager.write.row.eq(
                Mux(delivered.side, self.values.as_value(), self.keys.as_value())
            )
            if p.overflow:
                with m.If(delivered.far):
                    m.d.comb += stager.write.row.eq(far_row)
        return m

    def _read_layout(self) -> data.StructLayout:
        """Return the layout of a read in flight: of a slot, or of the arriving token's `own` row.

        The other fields are as in `Place`, `Chosen` and `ComputedRows`.
        """
        p = self.parameters
        return data.StructLayout(
            {
                "slot": 1,
                "own": 1,
                "source": Source,
                "side": 1,
                "vector": bits_for(p.members - 1),
                "head": p.eviction.head_bits,
                "word": range(max(p.memory.edram.entry_words, 2)),
                "far": 1,
            }
        )

    def _tiles(self, m: Module, place: Place, formats: SlotFormats) -> stream.Interface:
        """Return the formats of the tiles; with `overflow`, their rows are requested first."""
        p = self.parameters
        if not p.overflow:
            return formats.tiles
        m.submodules.overflow = overflow = OverflowReads(parameters=p)
        connect_streams(m, formats.tiles, overflow.formats)
        connect_streams(m, overflow.requests, self.overflow_reads)
        placement = Array(self.placements)[p.token_head(place.token, place.head)]
        m.d.comb += [
            overflow.outside.eq(place.far),
            overflow.side.eq(place.side),
            overflow.first.eq(self._far_slot(place, 0) * p.entry_words),
            overflow.residents.eq(place.residents),
            overflow.victim.eq(place.side & placement.recomputed),
            overflow.slot.eq(placement.slot),
        ]
        return overflow.tiles

    def _far_slot(self, place: Place, slot: Value | int) -> Value:
        """Return the number of a slot of the current head among those in off-chip memory."""
        p = self.parameters
        return (self._cached_head(place) - p.resident_heads) * p.slots + slot

    def _sequence(
        self,
        m: Module,
        place: Place,
        action: Action,
        formats: SlotFormats,
        tiles: stream.Interface,
        stager: BlockStager,
    ) -> None:
        """Sequence an operation: the rows of all slots, then those of the arriving token."""
        p = self.parameters
        offered = self.operations.payload
        last_row = place.row == p.rows - 1
        last_word = place.word == p.memory.edram.entry_words - 1
        next_word = Mux(last_word, 0, place.word + 1)
        # `begun`: the stager has reserved room for the block. `listed`: the formats of all tiles
        # have been looked up.
        begun, listed = Signal(), Signal()
        # The arriving token's row waits in turn for the reads of the slots.
        reads = p.memory.edram.read_cycles
        waits = [*(f"WAIT_{cycle}" for cycle in range(1, reads)), "STORE_OWN"]
        m.d.comb += [
            formats.heads.payload.eq(self._cached_head(place)),
            stager.take.eq((action.reads_slot & ~begun) | action.reads_own),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.operations.ready.eq(1)
                m.d.sync += [
                    place.token.eq(offered.token),
                    place.sequence.eq(Array(self.sequences)[offered.token]),
                    place.head.eq(offered.head),
                    place.side.eq(offered.operation == Operation.ATTEND),
                    place.tile.eq(0),
                    listed.eq(0),
                ]
                with m.If(self.operations.valid):
                    with m.If(offered.operation == Operation.OWN):
                        m.next = "READ_OWN"
                    with m.Else():
                        m.next = "READ_SLOTS"
            # A block is one word of the entries of all slots of a tile. Its first row reserves room
            # for all of its rows.
            with m.State("READ_SLOTS"):
                m.d.comb += [
                    formats.heads.valid.eq(~listed),
                    action.wants_slot.eq(tiles.valid & (begun | stager.room)),
                    tiles.ready.eq(action.reads_slot & last_row & last_word),
                ]
                with m.If(formats.heads.ready):
                    m.d.sync += listed.eq(1)
                with m.If(action.reads_slot):
                    m.d.sync += [begun.eq(~last_row), place.row.eq(place.row + 1)]
                    with m.If(last_row):
                        m.d.sync += place.word.eq(next_word)
                with m.If(tiles.ready):
                    m.d.sync += place.tile.eq(place.tile + 1)
                    with m.If(place.tile == p.cache_tiles - 1):
                        # With scores, the arriving token has an operation of its own.
                        with m.If(place.side):
                            m.next = "READ_OWN"
                        with m.Else():
                            m.next = "IDLE"
            # The arriving token's block has one word of its entry in all rows.
            with m.State("READ_OWN"):
                m.d.comb += action.reads_own.eq(stager.room)
                with m.If(stager.room):
                    m.next = waits[0]
            for wait, following in pairwise(waits):
                with m.State(wait):
                    m.next = following
            with m.State("STORE_OWN"):
                m.d.comb += action.stores_own.eq(1)
                stored = Mux(place.side, self.values_write.ready, self.keys_write.ready)
                if p.overflow:
                    stored = Mux(place.far, self.overflow_writes.ready, stored)
                with m.If(stored):
                    m.next = "REPEAT_OWN"
            with m.State("REPEAT_OWN"):
                m.d.comb += action.repeats_own.eq(1)
                m.d.sync += place.row.eq(place.row + 1)
                with m.If(last_row):
                    m.d.sync += place.word.eq(next_word)
                    m.next = "READ_OWN"
                    with m.If(last_word):
                        m.next = "IDLE"

    def _choose_source(self, m: Module, place: Place, tiles: stream.Interface) -> Chosen:
        """Select the source of the current slot's row.

        The victim of this step takes part in the attention, although its slot is already assigned
        to the arriving token.
        """
        p = self.parameters
        chosen = Chosen(source=Signal(Source), vector=Signal(bits_for(p.members - 1)))
        placement = Array(self.placements)[p.token_head(place.token, place.head)]
        held = Signal(p.format_layout)
        is_victim = place.side & placement.recomputed & (place.slot == placement.slot)
        m.d.comb += [
            held.eq(Array(tiles.payload)[place.row]),
            chosen.vector.eq(
                place.sequence * p.vectors + Mux(is_victim, placement.vector, held.vector)
            ),
        ]
        # An empty slot must give zeros: its row of the eDRAM is undefined.
        with m.If(place.slot >= place.residents):
            m.d.comb += chosen.source.eq(Source.NOWHERE)
        with m.Elif(is_victim | held.recomputed):
            m.d.comb += chosen.source.eq(Source.COMPUTED)
        return chosen

    def _access_edram(
        self, m: Module, place: Place, action: Action, from_edram: Value, computed: ComputedRows
    ) -> None:
        """Read the current slot's row, or write the arriving token's over its victim's."""
        p = self.parameters
        words = p.memory.edram.entry_words
        # Keys and values have the same address, each on its side.
        first = self._cached_head(place) * p.slots
        placement = Array(self.placements)[p.token_head(place.token, place.head)]
        for number, side in enumerate(SIDES):
            selected = place.side == number
            if p.overflow:
                selected = selected & ~place.far
            read, write = getattr(self, f"{side}_read"), getattr(self, f"{side}_write")
            m.d.comb += [
                read.valid.eq(selected & action.wants_slot & from_edram),
                read.payload.eq((first + place.slot) * words + place.word),
                write.valid.eq(selected & action.stores_own),
                write.payload.address.eq((first + placement.slot) * words + place.word),
                write.payload.row.eq(getattr(computed, side)),
            ]

        if p.overflow:
            write = self.overflow_writes
            own = [getattr(computed, side).as_value() for side in SIDES]
            m.d.comb += [
                write.valid.eq(action.stores_own & place.far),
                write.payload.side.eq(place.side),
                write.payload.address.eq(
                    self._far_slot(place, placement.slot) * words + place.word
                ),
                write.payload.row.eq(Mux(place.side, own[1], own[0])),
            ]

    def _cached_head(self, place: Place) -> Value:
        """Return the number of the current head among those of all layers and sequences."""
        p = self.parameters
        return p.eviction.cached_head(p.cache(self.layer, place.sequence), place.head)
