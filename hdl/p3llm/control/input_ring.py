"""The ring of a linear layer's inputs in the units, written ahead of the columns."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class InputRing(Unit):
    """Write all inputs of a linear layer in every round of tiles, over words already used.

    The units' input registers are a ring buffer of words, one ring per input of a column. A word is
    written once all columns that use the older word have been issued, in cycles without a column
    command.

    **Latency** 1 cycle from a write to `ready`. **Throughput** one word in every cycle with
    `grant`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    start : In(1)
        A product starts; `words`, `rounds`, `both`, `shared` and `first` are held until its end.
    words, rounds, both : In
        Words per input; number of rounds; whether two inputs share a column.
    shared, shared_words : In
        In the last round the upper half of the units has inputs of its own: those that follow the
        first `shared_words` words.
    first : In
        Place of each input in the NPU, in words.
    wants, grant : Out, In
        A write is requested; it is issued in this cycle.
    address : Out
        Place of the word in the NPU.
    word : Out
        Index of the word in the units' registers.
    half, upper : Out(1)
        The word is for half of the units: the upper or the lower ones.
    taken : In(1)
        A column command that uses `step` is issued.
    step : Out
        Step of the registers that holds the next column's inputs.
    ready : Out(1)
        The inputs of the next column are written.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        unit, place, bits = p.channel.unit, Places(p).word_bits, MemoryBits(p)
        super().__init__(
            {
                "start": In(1),
                "words": In(bits.words),
                "rounds": In(bits.rounds),
                "shared_words": In(bits.words),
                "shared": In(1),
                "both": In(1),
                "first_0": In(place),
                "first_1": In(place),
                "wants": Out(1),
                "grant": In(1),
                "address": Out(place),
                "word": Out(range(unit.words)),
                "half": Out(1),
                "upper": Out(1),
                "taken": In(1),
                "step": Out(range(unit.steps)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the words written and the columns issued."""
        m = Module()
        unit = self.parameters.channel.unit
        ring = unit.words // unit.pumps
        in_word = ceil_log2(unit.steps_a_word)
        pump, upper = Signal(), Signal()
        slot, word = Signal(range(ring)), Signal.like(self.words)
        rounds = Signal.like(self.rounds)
        # Words that are written and still needed.
        held = Signal(range(ring + 1))
        pumped = self.grant & (pump | ~self.both)
        # In a shared round, the upper units have words of their own: those of the second half.
        half = self.shared & (rounds == 1)
        whole = pumped & (upper | ~half)
        words = Mux(half, self.shared_words, self.words)
        second = word + self.shared_words
        own = Mux(upper & (second < self.words), second, word)
        leaves = self.taken & self.step[:in_word].all()
        m.d.comb += [
            self.wants.eq((rounds != 0) & (held != ring)),
            self.ready.eq(held != 0),
            self.address.eq(Mux(pump, self.first_1, self.first_0) + own),
            self.half.eq(half),
            self.upper.eq(upper),
            # The second input's words follow the first one's.
            self.word.eq(slot + Mux(pump, ring, 0)),
        ]
        m.d.sync += held.eq(held + whole - leaves)
        with m.If(self.taken):
            m.d.sync += self.step.eq(self.step + 1)
        with m.If(self.grant):
            m.d.sync += pump.eq(self.both & ~pump)
        with m.If(pumped):
            m.d.sync += upper.eq(half & ~upper)
        with m.If(whole):
            m.d.sync += [slot.eq(slot + 1), word.eq(word + 1)]
            # The next round of tiles uses the same inputs.
            with m.If(word == words - 1):
                m.d.sync += [word.eq(0), rounds.eq(rounds - 1)]
        with m.If(self.start):
            m.d.sync += [
                *(counter.eq(0) for counter in (pump, upper, slot, word, held, self.step)),
                rounds.eq(self.rounds),
            ]
        return m
