"""The importance of every token of a prefilled text: the sum of the scores of all queries.

Section 4.1: importance is the sum of a column of the causal attention matrix.
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.saturating_add import saturate
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class PrefillSums(Unit):
    """Add scores to the importances of a text's tokens, one tile of tokens at a time.

    **Latency** 1 cycle from a transfer to the write; `complete` is 1 in that cycle.
    **Throughput** one slice per cycle, also of the same tile as the previous slice.

    **Numerics** as in the evictor: floor(score / 2**shift) is added, the sum saturates.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions of the selector.

    Members
    -------
    open : In(1)
        The unit accepts scores.
    scores : In(stream)
        As in `PrefillSelector`.
    complete : Out(1)
        The head's last scores are written in this cycle.
    text_last : Out(position)
        Last position of the text.
    read_enable, read_address : In
        Read the importances of a tile; only while `open` is 0.
    word : Out(ArrayLayout(importance, rows))
        The tile read, from the cycle after the read until the next read.
    """

    def __init__(self, *, parameters: PrefillSelectorParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "open": In(1),
                "scores": In(stream.Signature(p.scores_layout)),
                "complete": Out(1),
                "text_last": Out(p.place_bits),
                "read_enable": In(1),
                "read_address": In(p.tile_bits),
                "word": Out(p.word_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a tile and mask its scores; add and write in the next cycle."""
        m = Module()
        p, evictor = self.parameters, self.parameters.eviction.evictor
        m.submodules.sums = sums = Memory(depth=max(p.tiles, 2), width=p.word_layout.size)
        given = self.scores.payload
        taken, adds = Signal(), Signal()
        header = Signal(p.scores_layout, reset_less=True)
        forward = Signal(reset_less=True)
        m.d.comb += [
            taken.eq(self.scores.valid & self.scores.ready),
            self.complete.eq(adds & header.last),
            self.scores.ready.eq(self.open & ~self.complete),
            self.text_last.eq(header.query),
            sums.read_enable.eq(taken | self.read_enable),
            sums.read_address.eq(Mux(self.open, given.tile, self.read_address)),
            self.word.eq(sums.read_data),
        ]
        # Two stages: the tile is read, then its sums are written back.
        m.d.sync += adds.eq(taken)
        with m.If(taken):
            m.d.sync += [header.eq(given), forward.eq(adds & (header.tile == given.tile))]
            # A query has no scores for tokens after it: attention is causal.
            seen = p.up_to(given.query, given.tile)
            for lane in range(p.rows):
                with m.If(~seen[lane]):
                    m.d.sync += header.scores[lane].eq(0)

        new = Signal(p.word_layout)
        before = Signal(p.word_layout, reset_less=True)
        # Forwarding: a tile that is written in this cycle was read before the write.
        for lane in range(p.rows):
            start = Mux(header.load, 0, Mux(forward, before[lane], self.word[lane]))
            total = start + (header.scores[lane] >> evictor.shift)
            m.d.comb += new[lane].eq(saturate(total, signed(evictor.score_width))[0])
        with m.If(adds):
            # The memory returns old data to a read of the address that is being written.
            m.d.sync += before.eq(new)
        m.d.comb += [
            sums.write_enable.eq(adds),
            sums.write_address.eq(header.tile),
            sums.write_data.eq(new),
        ]
        return m
