"""Looks up how the tokens of a head's slots are stored, tile by tile, ahead of the reads of rows.

Section 4.1 of the paper: a slot's token has its key and value in the KV eDRAM, or is recomputed
from its input vector.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.parameters import KelleParameters
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit


class SlotFormats(Unit):
    """Deliver the formats of a head's slots, one tile per transfer.

    Two tiles are looked up ahead, so that tiles follow each other without idle cycles while the
    slot table is busy.

    **Latency** 2 cycles from a head to its first tile. **Throughput** one tile per 2 cycles.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    heads : In(stream)
        A key/value head, numbered among those of all layers; transferred with its last lookup.
    listed : In(vectors)
        For each stored vector of the head's sequence, whether its token is recomputed in this step.
        A slot whose token became popular in this step has a vector that is not.
    lookup_request : Out(stream), lookup_response : In
        Lookups of the slot table, as in `EvictionController`.
    tiles : Out(stream)
        For each slot of a tile: its token is `recomputed`, from the input vector `vector`.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "heads": In(stream.Signature(p.eviction.cached_head_bits)),
                "listed": In(p.vectors),
                "lookup_request": Out(stream.Signature(p.eviction.address_bits)),
                "lookup_response": In(data.ArrayLayout(p.eviction.token_layout, p.rows)),
                "tiles": Out(stream.Signature(data.ArrayLayout(p.format_layout, p.rows))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Request a lookup if its response has room, in the cycle after the request."""
        m = Module()
        p = self.parameters
        m.submodules.held = held = RegisterSlice(shape=self.tiles.payload.shape())
        tile, asked, granted = Signal(range(max(p.cache_tiles, 2))), Signal(), Signal()
        last = tile == p.cache_tiles - 1
        m.d.comb += [
            self.lookup_request.valid.eq(self.heads.valid & held.source.ready & ~asked),
            self.lookup_request.payload.eq(self.heads.payload * p.cache_tiles + tile),
            granted.eq(self.lookup_request.valid & self.lookup_request.ready),
            self.heads.ready.eq(granted & last),
            held.source.valid.eq(asked),
        ]
        m.d.sync += asked.eq(granted)
        with m.If(granted):
            m.d.sync += tile.eq(Mux(last, 0, tile + 1))
        for slot, token in zip(held.source.payload, self.lookup_response, strict=True):
            listed = self.listed.bit_select(token.vector, 1) if p.step_tokens > 1 else 1
            m.d.comb += [
                slot.recomputed.eq(token.recomputed & listed),
                slot.vector.eq(token.vector),
            ]
        connect_streams(m, held.sink, self.tiles)
        return m
