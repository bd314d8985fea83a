"""Requests rows of keys and values that are in off-chip memory, ahead of their use.

Section 7 of the paper has an off-chip DRAM for the cached vectors that exceed the KV eDRAM, and
Section 4.1 recomputes popular tokens to save reads of it: their rows are not requested.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.parameters import KelleParameters
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

TILES_AHEAD = 4
"""Tiles whose rows are requested ahead: 128 rows of 32 slots cover a latency of 128 cycles."""


class OverflowReads(Unit):
    """Pass on the formats of a head's tiles, and request the rows that the fetch takes.

    Rows are requested in the order in which the fetch takes them: tile by tile, then word by word,
    then slot by slot. Empty slots and recomputed tokens have no rows. The tiles of a head in the
    eDRAM pass without requests.

    **Latency** 1 cycle. **Throughput** one request, or one slot without one, per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator, with `overflow`.

    Members
    -------
    outside, side, first : In
        The head is in off-chip memory; keys or values; address of its first row. Constant from a
        head's first tile to its last.
    residents : In
        Slots of the head that hold a token.
    victim, slot : In
        The token in `slot` is recomputed, whatever its format.
    formats, tiles : In(stream), Out(stream)
        For each slot of a tile, how its token is stored, as in `SlotFormats`.
    requests : Out(stream)
        Places of rows to read.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        formats = stream.Signature(data.ArrayLayout(p.format_layout, p.rows))
        super().__init__(
            {
                "outside": In(1),
                "side": In(1),
                "first": In(p.overflow_layout["address"].width),
                "residents": In(bits_for(p.slots)),
                "victim": In(1),
                "slot": In(p.eviction.evictor.index_width),
                "formats": In(formats),
                "tiles": Out(formats),
                "requests": Out(stream.Signature(p.overflow_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Step through the rows of a tile, then pass its formats on."""
        m = Module()
        p, words = self.parameters, self.parameters.entry_words
        m.submodules.ahead = ahead = Fifo(shape=self.tiles.payload.shape(), depth=TILES_AHEAD)
        tile = Signal(range(max(p.cache_tiles, 2)))
        word, row = Signal(range(max(words, 2))), Signal(range(p.rows))
        slot = Signal(range(p.slots))
        needs, steps, last = Signal(), Signal(), Signal()
        held = Signal(p.format_layout)
        m.d.comb += [
            slot.eq(tile * p.rows + row),
            held.eq(Array(self.formats.payload)[row]),
            needs.eq(
                (slot < self.residents) & ~held.recomputed & ~(self.victim & (slot == self.slot))
            ),
            last.eq(~self.outside | ((row == p.rows - 1) & (word == words - 1))),
            # The last row waits for room, so that it is requested once.
            self.requests.valid.eq(
                self.formats.valid & self.outside & needs & (~last | ahead.source.ready)
            ),
            self.requests.payload.side.eq(self.side),
            self.requests.payload.address.eq(self.first + slot * words + word),
            steps.eq(self.formats.valid & (~(self.outside & needs) | self.requests.ready)),
            ahead.source.valid.eq(steps & last),
            ahead.source.payload.eq(self.formats.payload),
            self.formats.ready.eq(ahead.source.ready & steps & last),
        ]
        with m.If(self.formats.ready & self.formats.valid):
            m.d.sync += [
                row.eq(0),
                word.eq(0),
                tile.eq(Mux(tile == p.cache_tiles - 1, 0, tile + 1)),
            ]
        with m.Elif(steps & ~last):
            m.d.sync += row.eq(row + 1)
            with m.If(row == p.rows - 1):
                m.d.sync += word.eq(word + 1)
        connect_streams(m, ahead.sink, self.tiles)
        return m
