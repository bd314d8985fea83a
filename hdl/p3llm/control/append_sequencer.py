"""The FSM that writes a token's key and value of a head into the banks."""

from collections.abc import Iterable
from itertools import product

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory_fifo import MemoryFifo
from hdl.p3llm.control.bank_scheduler import BankScheduler, parity_of
from hdl.p3llm.instructions import MemoryBits, memory_instruction
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class Part(enum.Enum, shape=3):
    """Part of an append.

    Members
    -------
    KEY_ZERO, VALUE_ZERO
        A zero point; that of a value is written to every unit that stores channels of it.
    KEY_SCALE, VALUE_SCALE
        A scale in FP16.
    KEY, VALUE
        Codes per write: four channels of a key, or one unit's channels of a value.
    """

    KEY_ZERO = 0
    KEY_SCALE = 1
    VALUE_SCALE = 2
    KEY = 3
    VALUE_ZERO = 4
    VALUE = 5


HALF_BYTES = (Part.KEY_ZERO, Part.VALUE_ZERO, Part.VALUE)
"""Parts that a mask of bytes cannot write: the column is read first."""


class AppendSequencer(Unit):
    """Write codes, zero points and scales to the positions from which products read them.

    Whole bytes are written with a mask. For nibbles the column is read, modified and written.

    **Throughput** one command per write of whole bytes; a write of nibbles also waits for its read.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    codes : In(stream)
        Slices of a key, then of a value, from the quantiser; first those of pseudo-channel 0. The
        codes of all heads of a token are accepted before the first append.
    instructions : In(stream)
        An append of the oldest codes, accepted when these have arrived.
    layer : In
        Position of the layer's first column.
    position : In
        Position of the token.
    column, taken : Out, In
        Request to `BankScheduler`, and its acceptance.
    command : Out(struct)
        The column command of this cycle, with the first pseudo-channel's data.
    others : Out
        Data of the other pseudo-channels, if there are any.
    arrived, arrived_data : In
        The column that was read, from each pseudo-channel.
    writes : Out(1)
        An append is in flight, and `column` is valid for it.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.groups = {
            name: data.StructLayout({"codes": 4 * p.head_size, "zero_point": 4, "scale": 16})
            for name in ("key", "value")
        }
        # One key and one value for the head of each pseudo-channel.
        channels = range(p.pseudo_channels)
        self.keys, self.values = (
            [Signal(self.groups[name], name=f"{name}_{c}" if c else name) for c in channels]
            for name in self.groups
        )
        self.loaded = Signal()
        self.part, self.turn = Signal(Part), Signal(range(max(p.head_size // PE_LANES, 2)))
        bits = p.channel.unit.column_bits
        others = {"others": Out((p.pseudo_channels - 1) * bits)}
        super().__init__(
            (others if p.pseudo_channels > 1 else {})
            | {
                "codes": In(stream.Signature(p.codes_layout)),
                "instructions": In(stream.Signature(memory_instruction(p))),
                "layer": In(MemoryBits(p).position),
                "position": In(range(p.slots)),
                "column": Out(BankScheduler.column_layout(p.channel, MemoryBits(p).position)),
                "taken": In(1),
                "command": Out(p.channel.column_command_layout),
                "arrived": In(1),
                "arrived_data": In(p.pseudo_channels * bits),
                "writes": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold a key and a value; write one part after the other."""
        m = Module()
        command = self.command
        self._hold(m)
        position = MemoryBits(self.parameters).position
        held = Signal(data.StructLayout({"base": position, "values": position}))
        written = self._written(m, held)
        kept = Signal(self._write_layout)
        where, mask = kept.position, kept.mask
        m.d.comb += [
            self.column.position.eq(where),
            self.column.unit.eq(kept.unit),
            command.bank.eq(Cat(parity_of(where[COLUMN_BITS:]), kept.unit)),
            command.column.eq(where[:COLUMN_BITS]),
            # This mask has a bit per nibble, that of the banks a bit per byte.
            command.mask.eq(Cat(mask.word_select(i, 2).any() for i in range(len(mask) // 2))),
            command.valid.eq(self.taken),
        ]
        if self.parameters.pseudo_channels > 1:
            m.d.comb += self.others.eq(kept.word[self.parameters.channel.unit.column_bits :])
        self._write(m, held, written, kept)
        return m

    def _write(self, m: Module, held: data.View, written: data.View, kept: data.View) -> None:
        """Accept an append; for each write: prepare, read if it has nibbles, write, advance."""
        command, word = self.command, kept.word
        wide = Cat(bit.replicate(4) for bit in kept.mask).replicate(self.parameters.pseudo_channels)
        m.d.comb += self.writes.eq(1)
        with m.FSM():
            # An append starts when the codes of key and value are held.
            with m.State("IDLE"):
                m.d.comb += [self.instructions.ready.eq(self.loaded), self.writes.eq(0)]
                with m.If(self.instructions.valid & self.loaded):
                    m.d.sync += [
                        held.base.eq(self.instructions.payload.base),
                        held["values"].eq(self.instructions.payload["values"]),
                        Value.cast(self.part).eq(0),
                        self.turn.eq(0),
                    ]
                    m.next = "PREPARE"
            # Register the write: this shortens the path to the timing rules, and the codes rotate
            # after it.
            with m.State("PREPARE"):
                m.d.sync += kept.eq(written)
                with m.If(Cat(self.part == one for one in HALF_BYTES).any()):
                    m.next = "READ"
                with m.Else():
                    m.next = "WRITE"
            # A nibble shares its byte with a neighbour, which must not change.
            with m.State("READ"):
                m.d.comb += self.column.valid.eq(1)
                m.d.comb += Value.cast(command.operation).eq(ColumnOperation.READ)
                with m.If(self.taken):
                    m.next = "MERGE"
            # The column arrives three cycles later.
            with m.State("MERGE"):
                with m.If(self.arrived):
                    m.d.sync += word.eq((self.arrived_data & ~wide) | (word & wide))
                    m.next = "WRITE"
            # Only the bytes under the mask change.
            with m.State("WRITE"):
                m.d.comb += [
                    self.column.valid.eq(1),
                    self.column.write.eq(1),
                    Value.cast(command.operation).eq(ColumnOperation.WRITE),
                    Value.cast(command.data).eq(word[: len(Value.cast(command.data))]),
                ]
                with m.If(self.taken):
                    m.next = "PREPARE"
                    self._advance(m)

    def _hold(self, m: Module) -> None:
        """Shift in slices of codes; the oldest slice ends at the lowest bits.

        The codes of all heads of a token wait in a memory, so that the NPU need not wait for the
        appends.
        """
        p = self.parameters
        slices = 2 * p.kv_heads * p.head_size // p.lanes
        m.submodules.waiting = waiting = MemoryFifo(shape=p.codes_layout, depth=slices)
        held = waiting.sink
        given = held.payload
        connect_streams(m, self.codes, waiting.source)
        m.d.comb += held.ready.eq(~self.loaded)
        with m.If(held.valid & held.ready):
            m.d.sync += self.loaded.eq(given.complete)
        for channel, number in product(range(p.pseudo_channels), range(2)):
            group = (self.keys, self.values)[number][channel]
            mine = held.valid & held.ready & (given.value == number)
            # Pseudo-channels without a head store copies of the last one's, which are not used.
            if channel < p.pseudo_channels - 1:
                mine &= given.channel <= channel
            with m.If(mine):
                m.d.sync += [
                    group.codes.eq(Cat(group.codes, given.codes)[4 * p.lanes :]),
                    group.zero_point.eq(given.zero_point),
                    group.scale.eq(given.scale),
                ]

    def _advance(self, m: Module) -> None:
        """Advance to the next write or the next part; rotate the codes as they are written."""
        p = self.parameters
        tiles = p.head_size // p.elements
        turns = {Part.KEY: p.head_size // PE_LANES, Part.VALUE: tiles, Part.VALUE_ZERO: tiles}
        last = Signal(init=1)
        m.d.comb += last.eq(1)
        for part, count in turns.items():
            with m.If(self.part == part):
                m.d.comb += last.eq(self.turn == count - 1)
        m.d.sync += self.turn.eq(Mux(last, 0, self.turn + 1))
        with m.If(last):
            m.d.sync += Value.cast(self.part).eq(Value.cast(self.part) + 1)
        # The lowest codes are written; rotate by as many as were written.
        with m.If(self.part == Part.KEY):
            m.d.sync += [key.codes.eq(key.codes.rotate_right(4 * PE_LANES)) for key in self.keys]
        with m.If(self.part == Part.VALUE):
            bits = 4 * p.elements
            m.d.sync += [one.codes.eq(one.codes.rotate_right(bits)) for one in self.values]
            with m.If(last):
                m.d.sync += self.loaded.eq(0)
                m.next = "IDLE"

    @property
    def _write_layout(self) -> data.StructLayout:
        """A write: its `position`, `unit`, `mask` of nibbles, and column (`word`)."""
        p = self.parameters
        return data.StructLayout(
            {
                "position": MemoryBits(p).position,
                "unit": range(p.units),
                "mask": PE_LANES * p.elements,
                "word": p.pseudo_channels * p.channel.unit.column_bits,
            }
        )

    def _written(self, m: Module, held: data.View) -> data.View:
        """Return the write of the current part."""
        p, token = self.parameters, self.position
        elements, bits = ceil_log2(p.elements), ceil_log2(p.block)
        element, unit_bits = token[:elements], token[elements:bits]
        # A set of keys is four rounds; a set of values has one column per four tokens.
        round_, lane, column = token[bits : bits + 2], token[:2], token[2 : 2 + elements]
        starts = self._starts(m, held)
        key_start, value_start = starts["keys"], starts["values"]
        written = Signal(self._write_layout)
        where, unit, mask, word = written.position, written.unit, written.mask, written.word
        # An element has four lanes of one nibble each.
        one_element = Const((1 << PE_LANES) - 1) << Cat(Const(0, 2), element)
        one_lane = (Const(1) << lane)[:PE_LANES].replicate(p.elements)
        m.d.comb += unit.eq(unit_bits)

        with m.Switch(self.part):
            # A set's zero points: one nibble per token, round by round.
            with m.Case(Part.KEY_ZERO):
                m.d.comb += [
                    where.eq(key_start),
                    mask.eq(Const(1) << Cat(element, round_)),
                    word.eq(self._copies(key.zero_point for key in self.keys)),
                ]
            # FP16 scale of a token: the two bytes of an element, one position per round.
            with m.Case(Part.KEY_SCALE, Part.VALUE_SCALE):
                of_value = self.part == Part.VALUE_SCALE
                both = zip(self.keys, self.values, strict=True)
                m.d.comb += [
                    where.eq(key_start + 1 + round_ + Mux(of_value, KEY_SET, 0)),
                    mask.eq(one_element),
                    word.eq(self._copies(Mux(of_value, v.scale, k.scale) for k, v in both)),
                ]
            # Four channels of a token are the two bytes of an element.
            with m.Case(Part.KEY):
                first = key_start + (1 + 2 * KEY_SET) + round_ * (p.head_size // PE_LANES)
                m.d.comb += [
                    where.eq(first + self.turn),
                    mask.eq(one_element),
                    word.eq(self._copies(key.codes[: 4 * PE_LANES] for key in self.keys)),
                ]
            # Every unit with channels of the head stores the zero points of all tokens.
            with m.Case(Part.VALUE_ZERO):
                m.d.comb += [
                    where.eq(value_start),
                    unit.eq(self.turn),
                    mask.eq(Const(1) << Cat(lane, column)),
                    word.eq(self._copies(value.zero_point for value in self.values)),
                ]
            # A token is a lane: the same nibble of every element.
            with m.Case(Part.VALUE):
                tiles, places = (value.codes for value in self.values), range(p.elements)
                codes = (tile.word_select(i, 4) for tile in tiles for i in places)
                m.d.comb += [
                    where.eq(value_start + 1 + column),
                    unit.eq(self.turn),
                    mask.eq(one_lane),
                    word.eq(Cat(code.replicate(PE_LANES) for code in codes)),
                ]
        return written

    def _starts(self, m: Module, held: data.View) -> data.View:
        """Return the first positions of the token's sets of `keys` and of `values`."""
        p, token = self.parameters, self.position
        key_set = token[ceil_log2(p.block) + 2 :]
        value_set = token[ceil_log2(p.elements) + 2 :]
        position = MemoryBits(p).position
        starts = Signal(data.StructLayout({"keys": position, "values": position}))
        m.d.comb += [
            starts["keys"].eq(self.layer + held.base + key_set * p.key_set),
            starts["values"].eq(self.layer + held["values"] + value_set * p.value_set),
        ]
        return starts

    def _copies(self, values: Iterable[Value]) -> Value:
        """Return a column of copies for each pseudo-channel; the mask selects the one to write."""
        bits = self.parameters.channel.unit.column_bits
        return Cat(value.replicate(bits // len(value)) for value in values)
