"""The eviction controller's turns: a step's sequences, one after the other.

Section 5.3 of the paper has one evictor beside the array; the sequences of a batch share it.
"""

from typing import Any

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class SequenceTurns(Unit):
    """Give the controller each sequence's token when it is done with the one before.

    It is done when the arriving token's own scores have gone down the evictor for all heads: until
    then wavefronts are under way that mean this sequence's slots.

    **Latency** 1 cycle from the start, and from one sequence to the next. **Throughput** one token
    at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    start : In(1)
        A step begins.
    positions : In
        Of the arriving tokens, from the cycle after the start.
    scored : In
        Heads of all sequences whose own scores are complete.
    tokens : Out(stream)
        The controller's.
    turn : Out
        Whose turn it is.
    begun : Out
        How many sequences have had their turn, the current one included.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "positions": In(data.ArrayLayout(p.position_bits, p.sequences)),
                "scored": In(p.count_shape),
                "tokens": Out(stream.Signature(p.position_bits)),
                "turn": Out(max(p.sequence_bits, 1)),
                "begun": Out(range(p.sequences + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Offer a token until it is taken; then wait for all its heads."""
        m = Module()
        p = self.parameters
        waits, done = Signal(), Signal()
        ended = Signal(p.count_shape)
        positions = Array(self.positions[s] for s in range(p.sequences))
        m.d.comb += [
            # The controller still reports what became popular, when all heads have been scored.
            done.eq((self.begun != 0) & ~waits & (self.scored == ended) & self.tokens.ready),
            self.tokens.valid.eq(waits),
            self.tokens.payload.eq(positions[self.turn]),
        ]
        with m.If(waits & self.tokens.ready):
            m.d.sync += [waits.eq(0), self.begun.eq(self.begun + 1)]
        # A sequence has as many heads as the ones before it.
        with m.Elif(done & (self.begun != p.sequences)):
            m.d.sync += [
                waits.eq(1),
                self.turn.eq(self.turn + 1),
                ended.eq(ended + p.heads),
            ]
        with m.If(self.start):
            m.d.sync += [waits.eq(1), self.begun.eq(0), self.turn.eq(0), ended.eq(p.heads)]
        return m
