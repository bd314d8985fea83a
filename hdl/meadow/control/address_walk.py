"""Nested-loop address generator for rows of words."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.parameters import MeadowParameters, MemoryUser
from hdl.unit import Unit


class AddressWalk(Unit):
    """Addresses of a nested loop over two dimensions.

    **Latency** 1 cycle. **Throughput** one address per cycle, including from loop to loop.

    Parameters
    ----------
    parameters : MeadowParameters
        Number of addresses.

    Members
    -------
    loops : In(stream)
        A loop of `loop_layout`; it has at least one row of at least one word.
    addresses : Out(stream)
        Each `address` with the `user` of its loop; `row_last` ends a row, `last` the loop. With
        token exponents also the `place` of the word's row, and `first` with the row's first word.
    serves : Out(len(MemoryUser))
        Bit u: an address of user u is valid. Each bit is a register.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        address = {"address": range(p.words), "row_last": 1, "last": 1, "user": MemoryUser}
        if p.token_exponents:
            address |= {"place": p.row_place_layout, "first": 1}
        super().__init__(
            {
                "loops": In(stream.Signature(p.loop_layout)),
                "addresses": Out(stream.Signature(data.StructLayout(address))),
                "serves": Out(len(MemoryUser)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Add `step` within a row and `stride` between rows."""
        m = Module()
        p, addresses, new = self.parameters, self.addresses, self.loops.payload
        loop = Signal(p.loop_layout, reset_less=True)
        address, row = (Signal(range(p.words), name=n, reset_less=True) for n in ("address", "row"))
        inner, outer = (Signal(range(p.longest_loop), name=name) for name in ("inner", "outer"))
        row_last, taken = Signal(), Signal()
        m.d.comb += [
            row_last.eq(inner + 1 == loop.inner),
            addresses.payload.address.eq(address),
            addresses.payload.row_last.eq(row_last),
            addresses.payload.last.eq(row_last & (outer + 1 == loop.outer)),
            addresses.payload.user.eq(loop.user),
            taken.eq(addresses.valid & addresses.ready),
            self.loops.ready.eq(~addresses.valid | (taken & addresses.payload.last)),
        ]
        with m.If(taken):
            m.d.sync += [inner.eq(inner + 1), address.eq(address + loop.step)]
            with m.If(row_last):
                # A register holds the first address of the row, so that no multiplier is needed.
                m.d.sync += [inner.eq(0), outer.eq(outer + 1)]
                m.d.sync += [address.eq(row + loop.stride), row.eq(row + loop.stride)]
        if p.token_exponents:
            # Loops of the combiner's words are over tiles, and in each over all tokens.
            tiles = loop.user == MemoryUser.COMBINER
            m.d.comb += [
                addresses.payload.place.token.eq(Mux(tiles, inner, outer)),
                addresses.payload.place.combined.eq(loop.combined),
                addresses.payload.first.eq(Mux(tiles, outer, inner) == 0),
            ]
        # The first address of a new loop follows the last one of the previous loop without a gap.
        with m.If(self.loops.ready):
            m.d.sync += addresses.valid.eq(self.loops.valid)
            m.d.sync += [
                self.serves[user.value].eq(self.loops.valid & (new.user == user))
                for user in MemoryUser
            ]
            m.d.sync += [loop.eq(new), inner.eq(0), outer.eq(0)]
            m.d.sync += [address.eq(new.first), row.eq(new.first)]
        return m
