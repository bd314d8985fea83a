"""The store of an operation's results, at ascending places."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.p3llm.npu.number_lanes import NumberLanesParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class ResultStore(Unit):
    """Write an operation's results: numbers into `NumberMemory`, codes into its input memories.

    There is one memory of inputs per pseudo-channel. A head's inputs are also written to all higher
    pseudo-channels, whose own ones follow, so that those without a head have defined inputs.

    **Latency** a slice can be read 1 cycle after its transfer. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    begin, target : In
        An operation begins, whose first result is stored at `target`.
    numbers : In(stream)
        `values` in binary32, and `last`; always ready.
    codes : In(stream)
        `codes` of inputs, and `last`; always ready.
    of_head, head : In
        With several pseudo-channels: the codes are those of a head, which is in `head`.
    ended : In(1)
        The operation ends in this cycle.
    write_enable, write_address, write_data : Out
        Write port of `NumberMemory`.
    word_address, word : In, Out
        Read port of the inputs: a word of each pseudo-channel, one cycle after its address.
    stores_inputs, stored_words : Out
        The operation stores inputs in order; words below `stored_words` are stored.
    done : Out(1)
        The last result is stored in this cycle.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places, values = Places(p), NumberLanesParameters(lanes=p.lanes).singles
        codes = data.ArrayLayout(8, p.lanes)
        super().__init__(
            {
                "begin": In(1),
                "target": In(places.address_bits),
                "numbers": In(stream.Signature(data.StructLayout({"values": values, "last": 1}))),
                "codes": In(stream.Signature(data.StructLayout({"codes": codes, "last": 1}))),
                **({"of_head": In(1), "head": In(p.channel_bits)} if p.channel_bits else {}),
                "ended": In(1),
                "write_enable": Out(1),
                "write_address": Out(places.numbers_bits),
                "write_data": Out(values),
                "word_address": In(places.word_bits),
                "word": Out(p.pseudo_channels * p.channel.unit.column_bits),
                "stores_inputs": Out(1),
                "stored_words": Out(places.word_bits),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count places; write each slice."""
        m = Module()
        p, places = self.parameters, Places(self.parameters)
        numbers, codes = self.numbers, self.codes
        # A word of inputs consists of several slices.
        slices = p.word // p.lanes
        in_word = ceil_log2(slices)
        place, was_ended = Signal(places.address_bits), Signal()
        taken = numbers.valid | codes.valid
        m.d.comb += [
            numbers.ready.eq(1),
            codes.ready.eq(1),
            self.write_enable.eq(numbers.valid),
            self.write_address.eq(place),
            self.write_data.eq(numbers.payload["values"]),
            self.stored_words.eq(place >> in_word),
            self.done.eq(taken & Mux(numbers.valid, numbers.payload.last, codes.payload.last)),
        ]
        with m.If(self.begin):
            m.d.sync += place.eq(self.target)
        with m.Elif(taken):
            m.d.sync += place.eq(place + 1)
        with m.If(codes.valid):
            m.d.sync += self.stores_inputs.eq(1)
        # After the end of an operation no inputs are being stored.
        m.d.sync += was_ended.eq(self.ended)
        with m.If(was_ended):
            m.d.sync += self.stores_inputs.eq(0)
        depth, column = places.words(places.inputs_depth), p.channel.unit.column_bits
        words = []
        for number in range(p.pseudo_channels):
            name = f"inputs_{number}" if number else "inputs"
            m.submodules[name] = inputs = Memory(depth=depth, width=column, granularity=8 * p.lanes)
            stored = codes.valid
            if number < p.pseudo_channels - 1:
                stored = codes.valid & Mux(self.of_head, self.head <= number, 1)
            m.d.comb += [
                inputs.write_enable.eq(stored << place[:in_word]),
                inputs.write_address.eq(place >> in_word),
                inputs.write_data.eq(codes.payload.codes.as_value().replicate(slices)),
                inputs.read_enable.eq(1),
                inputs.read_address.eq(self.word_address),
            ]
            words.append(inputs.read_data)
        m.d.comb += self.word.eq(Cat(words))
        return m
