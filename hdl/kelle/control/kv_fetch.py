"""The KV fetch: blocks of keys or values for the array, from the eDRAM or as just computed.

Section 6 of the paper: keys and values are fetched beside the weights. Section 4.1: what is
recomputed is never read from the eDRAM. The arriving token's key and value pass through here, and
on their way they are written into its victim's slot: the key when its own score is computed, the
value when the attention is done with the victim's.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.control.block_stager import BlockStager
from hdl.kelle.edram.kv_edram import SIDES, row_of
from hdl.kelle.parameters import (
    KelleParameters,
    Operation,
    computed_layout,
    operation_layout,
    placement_record,
)
from hdl.memory.memory import Memory
from hdl.unit import Unit


class State(enum.Enum, shape=3):
    """What the fetch does."""

    IDLE = 0
    LOOKUP = 1
    LATCH = 2
    ROWS = 3
    OWN_READ = 4
    OWN_WRITE = 5
    OWN_ROWS = 6


class Source(enum.Enum, shape=2):
    """Where a row comes from."""

    EDRAM = 0
    COMPUTED = 1
    NOWHERE = 2


class KvFetch(Unit):
    """Deliver the blocks of each operation, `rows` tokens by one eDRAM row, as beats of loads.

    A slot that holds no token gives zeros; one whose token is recomputed gives what was computed in
    this step. The arriving token's row is given to all rows of its block, so that its place in the
    tile need not be known to load it.

    **Latency** 4 cycles from an operation to its first row, and those of `BlockStager`.
    **Throughput** one row a cycle; urgent refreshes make it wait.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    operations : In(stream)
        `SCORE`, `OWN` or `ATTEND` of a head; what it needs is there.
    computed : In
        A slice of a key or value just computed: `side`, `vector`, `head`, `part`.
    residents : In
        For each head, how many slots hold a token.
    placements : In
        For each head, where the arriving token goes.
    look : Out(stream), shown : In
        The slot table's, as in `EvictionController`.
    keys_read, values_read, keys_write, values_write : Out(stream)
        The eDRAM's.
    keys, values : In
        The eDRAM's answers.
    beats : Out(stream)
        Beats of the array's loads.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        ports: dict[str, Any] = {
            "operations": In(stream.Signature(operation_layout(p))),
            "computed": In(computed_layout(p)),
            "residents": In(data.ArrayLayout(bits_for(p.slots), p.heads)),
            "placements": In(data.ArrayLayout(placement_record(p), p.heads)),
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

    def elaborate(self, platform: Any) -> Module:
        """Walk over tiles, eDRAM rows of an entry, and slots."""
        m = Module()
        p = self.parameters
        last_word = self.parameters.memory.edram.entry_words - 1
        m.submodules.stager = self.stager = stager = BlockStager(parameters=p)
        self.state = state = Signal(State)
        self.head = Signal(p.head_bits, reset_less=True)
        self.side = side = Signal(reset_less=True)
        self.word = word = Signal(range(max(last_word + 1, 2)))
        self.placement = Array(self.placements[h] for h in range(p.heads))[self.head]
        tile = Signal(range(p.tiles + 1))
        row = Signal(range(p.rows))
        begun = Signal()
        self.slot = Signal(range(p.slots))
        m.d.comb += self.slot.eq(Cat(row, tile))
        self._choose_source(m, row)

        # What a block's first row takes, its others find.
        self.room = begun | stager.room
        ready = Mux(side, self.values_read.ready, self.keys_read.ready)
        self.issues, self.own = issues, own = Signal(name="issues"), Signal(name="own")
        m.d.comb += [
            issues.eq((state == State.ROWS) & self.room & ((self.source != Source.EDRAM) | ready)),
            own.eq((state == State.OWN_READ) & stager.room),
            stager.take.eq((issues & ~begun) | own),
            self.lookup_request.valid.eq(state == State.LOOKUP),
            self.lookup_request.payload.eq(self.head * p.tiles + tile),
            self.operations.ready.eq(state == State.IDLE),
            self.beats.payload.eq(stager.beats.payload),
            self.beats.valid.eq(stager.beats.valid),
            stager.beats.ready.eq(self.beats.ready),
        ]
        self._hand_on(m)

        offered = self.operations.payload
        with m.Switch(state):
            with m.Case(State.IDLE):
                m.d.sync += [
                    self.head.eq(offered.head),
                    side.eq(offered.operation == Operation.ATTEND),
                    tile.eq(0),
                ]
                with m.If(self.operations.valid):
                    is_own = offered.operation == Operation.OWN
                    m.d.sync += state.eq(Mux(is_own, State.OWN_READ, State.LOOKUP))
            with m.Case(State.LOOKUP):
                with m.If(self.lookup_request.ready):
                    m.d.sync += state.eq(State.LATCH)
            with m.Case(State.LATCH):
                m.d.sync += [
                    *(self.formats[i].eq(self.lookup_response[i]) for i in range(p.rows)),
                    state.eq(State.ROWS),
                ]
            with m.Case(State.ROWS):
                with m.If(issues):
                    m.d.sync += [begun.eq(row != p.rows - 1), row.eq(row + 1)]
                    with m.If(row == p.rows - 1):
                        m.d.sync += word.eq(Mux(word == last_word, 0, word + 1))
                        with m.If(word == last_word):
                            m.d.sync += [tile.eq(tile + 1), state.eq(State.LOOKUP)]
                            with m.If(tile == p.tiles - 1):
                                m.d.sync += state.eq(Mux(side, State.OWN_READ, State.IDLE))
            with m.Case(State.OWN_READ):
                with m.If(own):
                    m.d.sync += state.eq(State.OWN_WRITE)
            with m.Case(State.OWN_WRITE):
                with m.If(Mux(side, self.values_write.ready, self.keys_write.ready)):
                    m.d.sync += state.eq(State.OWN_ROWS)
            with m.Case(State.OWN_ROWS):
                m.d.sync += row.eq(row + 1)
                with m.If(row == p.rows - 1):
                    m.d.sync += [
                        word.eq(Mux(word == last_word, 0, word + 1)),
                        state.eq(Mux(word == last_word, State.IDLE, State.OWN_READ)),
                    ]
        return m

    def _choose_source(self, m: Module, row: Signal) -> None:
        """Say where the current row comes from.

        The victim of this step is still attended to, although its slot is the arriving token's.
        """
        p = self.parameters
        self.source = Signal(Source)
        self.vector = Signal(bits_for(p.vectors))
        self.formats = Array(
            Signal(p.eviction.token_layout, name=f"format_{i}", reset_less=True)
            for i in range(p.rows)
        )
        residents = Array(self.residents[h] for h in range(p.heads))[self.head]
        held = Signal(p.eviction.token_layout)
        is_victim = self.side & self.placement.recomputed & (self.slot == self.placement.slot)
        m.d.comb += [
            held.eq(self.formats[row]),
            self.vector.eq(Mux(is_victim, self.placement.vector, held.vector)),
        ]
        with m.If(self.slot >= residents):
            m.d.comb += self.source.eq(Source.NOWHERE)
        with m.Elif(is_victim | held.recomputed):
            m.d.comb += self.source.eq(Source.COMPUTED)

    def _hand_on(self, m: Module) -> None:
        """Read from where a row comes, and hand it on a cycle later."""
        p = self.parameters
        edram = p.memory.edram
        own_rows = self.state == State.OWN_ROWS
        came_from = Signal(Source, reset_less=True)
        comes = Signal()
        m.d.sync += [comes.eq(self.issues), came_from.eq(self.source)]
        rows = []
        for number, name in enumerate(SIDES):
            memory = Memory(
                depth=p.members * p.heads * edram.entry_words,
                width=16 * edram.row_channels,
                granularity=p.slice_layout.size,
            )
            m.submodules[f"computed_{name}"] = memory
            row = row_of(
                edram, [memory.read_data.word_select(c, 16) for c in range(edram.row_channels)]
            )
            mine = self.side == number
            read, write = getattr(self, f"{name}_read"), getattr(self, f"{name}_write")
            first = self.head * p.slots
            m.d.comb += [
                read.valid.eq(
                    mine & self.room & (self.state == State.ROWS) & (self.source == Source.EDRAM)
                ),
                read.payload.eq((first + self.slot) * edram.entry_words + self.word),
                write.valid.eq(mine & (self.state == State.OWN_WRITE)),
                write.payload.address.eq(
                    (first + self.placement.slot) * edram.entry_words + self.word
                ),
                write.payload.row.eq(row),
                memory.read_enable.eq(
                    mine & (self.own | (self.issues & (self.source == Source.COMPUTED)))
                ),
                memory.read_address.eq(
                    self._computed_address(Mux(self.own, p.vectors, self.vector), self.head)
                    + self.word
                ),
                memory.write_address.eq(
                    self._computed_address(self.computed.vector, self.computed.head)
                    + self.computed.part // p.row_slices
                ),
                memory.write_data.eq(self.computed["values"].as_value().replicate(p.row_slices)),
                memory.write_enable.eq(
                    (self.computed.strobe & (self.computed.side == number))
                    << self.computed.part % p.row_slices
                ),
            ]
            kept = own_rows | (came_from == Source.COMPUTED)
            rows.append(Mux(kept, row, getattr(self, name).as_value()))
        nothing = ~own_rows & (came_from == Source.NOWHERE)
        m.d.comb += [
            self.stager.write.strobe.eq(comes | own_rows),
            self.stager.write.row.eq(Mux(nothing, 0, Mux(self.side, rows[1], rows[0]))),
        ]

    def _computed_address(self, vector: Value, head: Value) -> Value:
        """Return the first word of a token's computed key or value."""
        return (vector * self.parameters.heads + head) * self.parameters.memory.edram.entry_words
