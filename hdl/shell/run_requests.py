"""Bursts of the rows that an accelerator requests one by one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort
from hdl.unit import Unit

LEAST = 4
"""Words of a burst that waits for no further word."""

MOST = 64
"""Words of the longest burst: as many as rows that LAD requests ahead."""


class RunRequests(Unit):
    """Request words of memory; consecutive addresses become one burst.

    A burst waits for the next address as long as one arrives in each cycle, up to `LEAST` words. It
    grows further only while the memory does not accept it.

    **Latency** 2 cycles; up to 5 if further addresses follow. **Throughput** one address per cycle,
    if consecutive ones are in bursts.

    Parameters
    ----------
    address_bits, longest : int
        As for `BurstReadPort`.

    Members
    -------
    rows : In(stream)
        Addresses of words.
    requests : Out(stream)
        The bursts of these words, in order.
    """

    def __init__(self, *, address_bits: int, longest: int) -> None:
        port = BurstReadPort(address_bits=address_bits, word_shape=1, longest=longest)
        super().__init__(
            {
                "rows": In(stream.Signature(address_bits)),
                "requests": Out(stream.Signature(port.request_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Extend the next burst; an offered one is constant until its transfer."""
        m = Module()
        rows, offered = self.rows, self.requests
        waits, first = Signal(), Signal.like(rows.payload)
        number, extends = Signal(range(MOST + 1)), Signal()
        free, moves = Signal(), Signal()
        m.d.comb += [
            extends.eq((rows.payload == first + number) & (number != MOST)),
            free.eq(~offered.valid | offered.ready),
            moves.eq(waits & free & ((number >= LEAST) | ~(rows.valid & extends))),
            # A burst that is not extended is offered at once: `ready` does not need `valid`.
            rows.ready.eq(~waits | free | extends),
        ]
        with m.If(moves):
            m.d.sync += [
                offered.valid.eq(1),
                offered.payload.address.eq(first),
                offered.payload.length.eq(number),
            ]
        with m.Elif(offered.ready):
            m.d.sync += offered.valid.eq(0)
        # The next burst begins in the cycle in which the present one is offered.
        with m.If(moves | ~waits):
            m.d.sync += [waits.eq(rows.valid), first.eq(rows.payload), number.eq(1)]
        with m.Elif(rows.valid & extends):
            m.d.sync += number.eq(number + 1)
        return m
