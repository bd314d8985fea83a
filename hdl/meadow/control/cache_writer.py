"""Write keys, values, scores and probabilities to external memory, one burst per head."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.control.burst_list import BurstList
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class CacheWriter(Unit):
    """Write a GEMM's INT8 results, one burst per tile, or rows of attention, one burst per head.

    **Latency** 1 cycle to the first request, 0 cycles for words. **Throughput** one word per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of results and words.

    Members
    -------
    blocks : In(stream)
        Addresses of the tiles and words per tile.
    wide : In(1)
        Results have two bytes, in two words: the word of the lower bytes first. Constant during a
        block.
    results : In(stream)
        `word` and `last` of the tile's results.
    cache_writes : Out(port)
        One burst per tile.
    finished : Out(1)
        The last word and the last request have been accepted.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "blocks": In(stream.Signature(p.blocks_layout)),
                "wide": In(1),
                "results": In(stream.Signature(p.tile.result_layout)),
                "cache_writes": Out(p.writes(p.element.word_layout)),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the words of each burst."""
        m = Module()
        p, words, results = self.parameters, self.cache_writes.words, self.results
        m.submodules.bursts = bursts = BurstList(parameters=p)
        connect_streams(m, self.blocks, bursts.blocks)
        connect_streams(m, bursts.requests, self.cache_writes.requests)
        # The burst list may finish its requests before the words do: the length has a register of
        # its own.
        length, word = (Signal(p.blocks_layout["length"].shape, name=n) for n in ("length", "word"))
        moves, ended, upper = Signal(), Signal(), Signal()
        m.d.comb += [
            moves.eq(words.valid & words.ready),
            words.valid.eq(results.valid),
            results.ready.eq(words.ready & (upper | ~self.wide)),
            *(
                # Results have 16 bits, of which INT8 results use the lower byte.
                narrow.eq(Mux(upper, wide[OPERAND.width :], wide[: OPERAND.width]))
                for narrow, wide in zip(words.payload.word, results.payload.word, strict=True)
            ),
            words.payload.last.eq(word + 1 == length),
            # A word is not written before its request is accepted.
            self.finished.eq(ended & ~bursts.requests.valid),
        ]
        with m.If(results.valid & results.ready & results.payload.last):
            m.d.sync += ended.eq(1)
        with m.Elif(self.finished):
            m.d.sync += ended.eq(0)
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += length.eq(self.blocks.payload.length)
        with m.If(moves):
            m.d.sync += word.eq(Mux(words.payload.last, 0, word + 1))
            m.d.sync += upper.eq(self.wide & ~upper)
        return m
