"""The addresses of a block of words: rows, one after the other."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.parameters import MeadowParameters, Reader
from hdl.unit import Unit


class AddressWalk(Unit):
    """Count through two dimensions.

    **Latency** 1 cycle. **Throughput** an address a cycle, also from walk to walk.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    walks : In(stream)
        Of at least one row, of at least one word.
    addresses : Out(stream)
        Each `address`; `row_last` ends a row, `last` the walk; its `reader`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        address = {"address": range(p.words), "row_last": 1, "last": 1, "reader": Reader}
        super().__init__(
            {
                "walks": In(stream.Signature(p.walk_layout)),
                "addresses": Out(stream.Signature(data.StructLayout(address))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Step within a row, then from row to row."""
        m = Module()
        p, addresses, new = self.parameters, self.addresses, self.walks.payload
        walk = Signal(p.walk_layout, reset_less=True)
        address, row = (Signal(range(p.words), name=n, reset_less=True) for n in ("address", "row"))
        inner, outer = (Signal(range(p.words + 1), name=name) for name in ("inner", "outer"))
        row_last, taken = Signal(), Signal()
        m.d.comb += [
            row_last.eq(inner + 1 == walk.inner),
            addresses.payload.address.eq(address),
            addresses.payload.row_last.eq(row_last),
            addresses.payload.last.eq(row_last & (outer + 1 == walk.outer)),
            addresses.payload.reader.eq(walk.reader),
            taken.eq(addresses.valid & addresses.ready),
            self.walks.ready.eq(~addresses.valid | (taken & addresses.payload.last)),
        ]
        with m.If(taken):
            m.d.sync += [inner.eq(inner + 1), address.eq(address + walk.step)]
            with m.If(row_last):
                # No multiplier: a row's beginning is kept, and moves on.
                m.d.sync += [inner.eq(0), outer.eq(outer + 1)]
                m.d.sync += [address.eq(row + walk.stride), row.eq(row + walk.stride)]
        # A new walk's first address follows the last one of the walk before.
        with m.If(self.walks.ready):
            m.d.sync += addresses.valid.eq(self.walks.valid)
            m.d.sync += [walk.eq(new), inner.eq(0), outer.eq(0)]
            m.d.sync += [address.eq(new.first), row.eq(new.first)]
        return m
