"""Order in which the tokens of a step use the eviction controller.

Section 5.3 of the paper has one evictor next to the array; the tokens of a step share it.
"""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class TokenTurns(Unit):
    """Offer the controller each token after it has finished the previous one.

    A token is finished when its own scores of all heads have passed the evictor. Until then,
    wavefronts that refer to the slots of its sequence are in flight. Consecutive tokens of one
    sequence therefore find the slots and importances that the previous ones have left.

    **Latency** 1 cycle from the start, and from one token to the next. **Throughput** one token at
    a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins.
    arriving, sequences, last_token : In
        Position and sequence of each token, and index of the last one, valid from the cycle after
        the start.
    scored : In
        Number of heads, for all tokens, whose own scores are complete.
    positions : Out(stream)
        Positions for the eviction controller.
    turn, sequence : Out
        Index of the current token, and its sequence.
    begun : Out
        Number of tokens that the controller has taken, the current one included.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "arriving": In(data.ArrayLayout(p.position_bits, p.step_tokens)),
                "sequences": In(p.sequences_layout),
                "last_token": In(p.token_shape),
                "scored": In(p.count_shape),
                "positions": Out(stream.Signature(p.position_bits)),
                "turn": Out(p.token_shape),
                "sequence": Out(max(p.sequence_bits, 1)),
                "begun": Out(range(p.step_tokens + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Offer a token until the controller takes it; then wait for all of its heads."""
        m = Module()
        p = self.parameters
        waits, done = Signal(), Signal()
        ended = Signal(p.count_shape)
        arriving = Array(self.arriving[t] for t in range(p.step_tokens))
        m.d.comb += [
            # After the last score, the controller may still report a popular token: it becomes
            # ready when it has.
            done.eq((self.begun != 0) & ~waits & (self.scored == ended) & self.positions.ready),
            self.positions.valid.eq(waits),
            self.positions.payload.eq(arriving[self.turn]),
            self.sequence.eq(Array(self.sequences[t] for t in range(p.step_tokens))[self.turn]),
        ]
        with m.If(waits & self.positions.ready):
            m.d.sync += [waits.eq(0), self.begun.eq(self.begun + 1)]
        # All tokens have the same number of heads.
        with m.Elif(done & (self.begun <= self.last_token)):
            m.d.sync += [
                waits.eq(1),
                self.turn.eq(self.turn + 1),
                ended.eq(ended + p.kv_heads),
            ]
        with m.If(self.start):
            m.d.sync += [waits.eq(1), self.begun.eq(0), self.turn.eq(0), ended.eq(p.kv_heads)]
        return m
