"""Inputs of a linear layer on their way into the units, a word ahead of the columns."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.control.memory_instructions import MemoryBits
from hdl.p3llm.npu.places import Places
from hdl.p3llm.parameters import P3llmParameters
from hdl.unit import Unit


class InputRing(Unit):
    """Write the inputs of rounds of tiles, all of them in every round, over those that were used.

    The units' input registers are a ring of words for each of a column's inputs: a word is written
    where all columns before have left, in cycles that no column needs.

    **Latency** a cycle from a write to `ready`. **Throughput** a word in every cycle with `grant`.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    start : In(1)
        A product begins: the next members stand until its end.
    words, rounds, both : In
        Words of an input, how often they come, whether two inputs meet a column.
    first : In
        In slices of words, where each input stands in the NPU.
    wants, grant : Out, In
        A word may be written in this cycle; it is.
    address : Out
        Which word of the NPU's.
    word : Out
        Which word of the units' registers.
    taken : In(1)
        A column uses `step` of the registers.
    step : Out
        Where the next column's inputs are.
    ready : Out(1)
        They are there.
    done : Out(1)
        All words of all rounds are written.

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
                "both": In(1),
                "first_0": In(place),
                "first_1": In(place),
                "wants": Out(1),
                "grant": In(1),
                "address": Out(place),
                "word": Out(range(unit.words)),
                "taken": In(1),
                "step": Out(range(unit.steps)),
                "ready": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count words that are written and columns that were taken."""
        m = Module()
        unit = self.parameters.channel.unit
        ring = unit.words // unit.pumps
        in_word = ceil_log2(unit.steps_a_word)
        pump, slot, word = Signal(), Signal(range(ring)), Signal.like(self.words)
        rounds = Signal.like(self.rounds)
        # Words that are written and not used up.
        held = Signal(range(ring + 1))
        whole = self.grant & (pump | ~self.both)
        leaves = self.taken & self.step[:in_word].all()
        m.d.comb += [
            self.done.eq(rounds == 0),
            self.wants.eq(~self.done & (held != ring)),
            self.ready.eq(held != 0),
            self.address.eq(Mux(pump, self.first_1, self.first_0) + word),
            # The second input's words stand behind the first one's.
            self.word.eq(slot + Mux(pump, ring, 0)),
        ]
        m.d.sync += held.eq(held + whole - leaves)
        with m.If(self.taken):
            m.d.sync += self.step.eq(self.step + 1)
        with m.If(self.grant):
            m.d.sync += pump.eq(self.both & ~pump)
        with m.If(whole):
            m.d.sync += [slot.eq(slot + 1), word.eq(word + 1)]
            # The next round of tiles meets the same inputs.
            with m.If(word == self.words - 1):
                m.d.sync += [word.eq(0), rounds.eq(rounds - 1)]
        with m.If(self.start):
            m.d.sync += [
                *(counter.eq(0) for counter in (pump, slot, word, held, self.step)),
                rounds.eq(self.rounds),
            ]
        return m
