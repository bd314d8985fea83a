"""The bursts and passes of a token's attention: for each group of heads scores, then outputs."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.instructions import PassKind, Space
from hdl.veda.parameters import VedaParameters


class AttentionSequencer(Unit):
    """Issue one burst of keys and one of values for each round of heads.

    The scores of a group of heads precede its outputs. The softmax of the group's first heads
    completes while the scores of its later heads are computed, and the votes are counted while its
    outputs are computed: neither takes extra cycles.

    **Latency** 0 cycles. **Throughput** one burst per cycle.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    tokens : In(stream)
        A token; transferred with its last burst.
    reads : Out(stream)
        Bursts of the keys or values of all cached tokens, this one included.
    passes : Out(stream)
        What the arrays compute with each burst; transferred together with it.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "tokens": In(stream.Signature(p.cached_token_layout)),
                "reads": Out(stream.Signature(p.read_layout)),
                "passes": Out(stream.Signature(p.pass_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Step through the rounds of a group twice, then through the next group."""
        m = Module()
        p, token, task = self.parameters, self.tokens.payload, self.tokens.payload.task
        burst, header = self.reads.payload, self.passes.payload
        # The round, and the first round of its group.
        head_round, first = Signal(range(p.rounds)), Signal(range(p.rounds))
        outer, moves = Signal(), Signal()
        last = head_round == p.rounds - 1
        # A burst and its pass are transferred in the same cycle.
        m.d.comb += [
            moves.eq(self.tokens.valid & self.reads.ready & self.passes.ready),
            self.reads.valid.eq(self.tokens.valid & self.passes.ready),
            self.passes.valid.eq(self.tokens.valid & self.reads.ready),
            self.tokens.ready.eq(moves & last & outer),
            burst.beats.eq(token.length),
            header.beats.eq(token.length),
            header.kind.eq(Mux(outer, PassKind.OUTPUTS, PassKind.SCORES)),
            header.final.eq(last & ~outer & token.last),
            *(header[name].eq(task[name]) for name in ("vote", "operation", "last_token")),
        ]
        for channel in range(p.channels):
            # The key/value head that a channel reads in each round is a constant; query heads may
            # share it.
            heads = Array(p.kv_head(number, channel) for number in range(p.rounds))
            address = burst.addresses[channel]
            # The fields are concatenated, and each burst begins at slot 0.
            line = data.View(p.cache_line, address.line[: p.cache_line.size])
            m.d.comb += [
                address.space.eq(Space.CACHE),
                address.layer.eq(task.layer),
                line.part.eq(channel % p.vector_lines),
                line.value.eq(outer),
                line.kv_head.eq(heads[head_round]),
            ]
        fills_group = Array(
            number % p.scored_heads == p.scored_heads - 1 for number in range(p.rounds)
        )
        closes = fills_group[head_round] | last
        # After a group's last scores return to its first head; after its last outputs, go to the
        # next group.
        with m.If(moves):
            m.d.sync += head_round.eq(head_round + 1)
            with m.If(closes & ~outer):
                m.d.sync += [outer.eq(1), head_round.eq(first)]
            with m.Elif(closes):
                m.d.sync += [outer.eq(0), first.eq(head_round + 1)]
            with m.If(last & outer):
                m.d.sync += [head_round.eq(0), first.eq(0)]
        return m
