"""Storage of keys that are quantised before the rotary embedding; read by token, in slices."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.p3llm.parameters import KEY_SET, P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.places import Places
from hdl.unit import Unit

INTEGER = signed(5)
"""Shape of a code minus its zero point."""


class KeyReader(Unit):
    """Store columns of keys as they are in the banks, and read them token by token.

    A column contains four channels of the tokens of a unit. The columns that make up a slice are
    stored in one word, so that a token's slice is part of one read.

    **Latency** 2 cycles from `start`. **Throughput** one slice per cycle. **Numerics** exact: codes
    minus zero points, -15 to 15.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    keys_write, zeros_write : In(1)
        Write a column of codes, or of zero points, of each pseudo-channel.
    address, columns : In
        Address and data of the write.
    start : In(1)
        Read `count` slices of tokens, `lanes` tokens each; not while slices are in flight.
    keys, zeros, count, channel : In
        First columns of the head's codes and zero points, the number of slices of tokens and, with
        several pseudo-channels, the pseudo-channel; held until the last slice is transferred.
    slices : Out(stream)
        `values`: `lanes` channels of a token; `last` slice of the token; `token`, its index within
        a slice of tokens; `final` slice of all tokens.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places = Places(p)
        column = p.channel.unit.column_bits
        # A slice consists of several columns, or of a part of one.
        self.columns_a_word, self.parts = max(1, p.lanes // PE_LANES), max(1, PE_LANES // p.lanes)
        channels = range(p.pseudo_channels)
        words = places.keys(2) // self.columns_a_word
        self.codes = [
            Memory(depth=words, width=self.columns_a_word * column, granularity=column)
            for _ in channels
        ]
        self.zero_points = [Memory(depth=places.zeros(2), width=column) for _ in channels]
        super().__init__(
            {
                "keys_write": In(1),
                "zeros_write": In(1),
                "address": In(places.column_bits),
                "columns": In(p.pseudo_channels * column),
                "start": In(1),
                "keys": In(places.column_bits),
                "zeros": In(places.column_bits),
                "count": In(places.count_bits),
                **({"channel": In(p.channel_bits)} if p.channel_bits else {}),
                "slices": Out(stream.Signature(self.slice_layout(p))),
            }
        )

    @staticmethod
    def slice_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of a slice of a token."""
        return data.StructLayout(
            {
                "values": data.ArrayLayout(INTEGER, p.lanes),
                "token": range(p.lanes),
                "last": 1,
                "final": 1,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count slices and tokens; select the token's channels from the word read."""
        m = Module()
        p, slices = self.parameters, self.slices
        place_parts(m, self)
        self._writes(m)
        count = p.head_size // p.lanes
        running, index, token = Signal(), Signal(range(count)), Signal(range(p.slots + 1))
        move, last, final = Signal(), Signal(), Signal()
        m.d.comb += [
            # The memories hold their words until the next read, so that the stream may stall.
            move.eq(running & (~slices.valid | slices.ready)),
            last.eq(index == count - 1),
            final.eq(last & (token + 1 == self.count << ceil_log2(p.lanes))),
        ]
        with m.If(~slices.valid | slices.ready):
            m.d.sync += slices.valid.eq(running)
        with m.If(move):
            m.d.sync += [
                index.eq(Mux(last, 0, index + 1)),
                token.eq(token + last),
                running.eq(~final),
            ]
        with m.If(self.start):
            m.d.sync += [running.eq(1), index.eq(0), token.eq(0)]
        self._reads(m, move, index, token)
        shown, part = (
            delay_line(m, value, 1, name=name, enable=move)[1]
            for value, name in ((token, "shown"), (index[: ceil_log2(self.parts)], "part"))
        )
        marks = delay_line(m, Cat(last, final), 1, name="marks", enable=move)[1]
        m.d.comb += [
            slices.payload.token.eq(shown[: ceil_log2(p.lanes)]),
            slices.payload.last.eq(marks[0]),
            slices.payload.final.eq(marks[1]),
        ]
        self._chosen(m, shown, part)
        return m

    def _writes(self, m: Module) -> None:
        """Write columns, which arrive position by position and, within one, unit by unit."""
        p = self.parameters
        units, beside = ceil_log2(p.units), ceil_log2(self.columns_a_word)
        unit, column = self.address[:units], self.address[units:][:beside]
        parts = zip(self.codes, self.zero_points, strict=True)
        for number, (codes, zeros) in enumerate(parts):
            given = self.columns.word_select(number, p.channel.unit.column_bits)
            m.d.comb += [
                # A word holds a unit's columns of neighbouring positions.
                codes.write_enable.eq(self.keys_write << column),
                codes.write_address.eq(Cat(unit, self.address[units + beside :])),
                codes.write_data.eq(given.replicate(self.columns_a_word)),
                zeros.write_enable.eq(self.zeros_write),
                zeros.write_address.eq(self.address),
                zeros.write_data.eq(given),
            ]

    def _reads(self, m: Module, move: Signal, index: Signal, token: Signal) -> None:
        """Read the word that contains a token's slice, and the column of its zero point."""
        p = self.parameters
        units, elements = ceil_log2(p.units), ceil_log2(p.elements)
        unit, round_ = token[elements : elements + units], token[elements + units :]
        # Rounds of tokens are stored back to back, each with all words of its tokens.
        words = p.head_size // PE_LANES // self.columns_a_word
        first = (self.keys >> ceil_log2(self.columns_a_word) + units) + round_ * words
        word = first + (index >> ceil_log2(self.parts))
        of_set = (self.zeros >> units) + (round_ >> ceil_log2(KEY_SET))
        for codes, zeros in zip(self.codes, self.zero_points, strict=True):
            m.d.comb += [
                codes.read_enable.eq(move),
                codes.read_address.eq(Cat(unit, word)),
                zeros.read_enable.eq(move),
                zeros.read_address.eq(Cat(unit, of_set)),
            ]

    def _chosen(self, m: Module, token: Value, part: Value) -> None:
        """Output the channels of a token, minus its zero point."""
        p = self.parameters
        units, elements = ceil_log2(p.units), ceil_log2(p.elements)
        element, round_ = token[:elements], token[elements + units :][: ceil_log2(KEY_SET)]
        column = p.channel.unit.column_bits
        channel = self.channel if p.channel_bits else 0
        word, zeros = (
            Cat(one.read_data for one in memories).word_select(channel, memories[0].width)
            for memories in (self.codes, self.zero_points)
        )
        # In each column, the four lanes of an element are channels of the token.
        columns = (word.word_select(i, column) for i in range(self.columns_a_word))
        own = Cat(one.word_select(element, 4 * PE_LANES) for one in columns)
        channels = own.word_select(part, 4 * min(p.lanes, PE_LANES * self.columns_a_word))
        zero = zeros.word_select(Cat(element, round_), 4)
        m.d.comb += [
            self.slices.payload["values"][i].eq(channels.word_select(i, 4) - zero)
            for i in range(p.lanes)
        ]
