"""Load unique matrices into the two halves of the look-up tables."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters
from hdl.unit import Unit


class TableLoader(Unit):
    """Loader of the half of the tables that is not read.

    **Latency** a half is complete one cycle after its last row. **Throughput** `rows` rows per
    cycle.

    Parameters
    ----------
    parameters : WeightUnpackerParameters
        Words of a table, and their rows.

    Members
    -------
    words : In(stream)
        Words of unique matrices; `last` with the last word of each.
    write_enable, write_address : Out
        The word in `words` is written to this address of all tables.
    half : Out(1)
        The half that is read, the top bit of a read address.
    complete : Out(1)
        It holds a complete unique matrix.
    size : Out
        Number of its rows, those that pad the last word included.
    cut : Out(1)
        Words that did not fit were discarded.
    release : In(1)
        Its last look-up is complete; the other half is read next.
    """

    def __init__(self, *, parameters: WeightUnpackerParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "words": In(stream.Signature(p.table_layout)),
                "write_enable": Out(1),
                "write_address": Out(p.address_bits),
                "half": Out(1),
                "complete": Out(1),
                "size": Out(p.unpacker.id_bits + 1),
                "cut": Out(1),
                "release": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fill the halves alternately."""
        m = Module()
        p, words = self.parameters, self.words
        filled, word = Signal(), Signal(p.address_bits)
        complete, cut = Signal(2), Signal(2)
        sizes = [Signal(p.address_bits, name=f"size_{i}", reset_less=True) for i in (0, 1)]
        taken, fits = Signal(), Signal()
        m.d.comb += [
            words.ready.eq(~complete.bit_select(filled, 1)),
            taken.eq(words.valid & words.ready),
            # Words that do not fit are discarded.
            fits.eq(word != p.words),
            self.write_enable.eq(taken & fits),
            self.write_address.eq(Cat(word[:-1], filled)),
            self.complete.eq(complete.bit_select(self.half, 1)),
            self.size.eq(Array(sizes)[self.half] << exact_log2(p.rows)),
            self.cut.eq(cut.bit_select(self.half, 1)),
        ]
        with m.If(self.release):
            m.d.sync += [complete.bit_select(self.half, 1).eq(0), self.half.eq(~self.half)]
        with m.If(taken):
            m.d.sync += word.eq(Mux(words.payload.last, 0, word + fits))
            with m.If(words.payload.last):
                m.d.sync += [
                    filled.eq(~filled),
                    complete.bit_select(filled, 1).eq(1),
                    cut.bit_select(filled, 1).eq(~fits),
                    Array(sizes)[filled].eq(word + fits),
                ]
        return m
