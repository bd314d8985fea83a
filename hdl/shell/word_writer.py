"""Address generator that writes a stream to consecutive words of memory."""

from amaranth.hdl import Module, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstWritePort
from hdl.unit import Unit


class WordWriter(Unit):
    """Write each item as a burst of one word, from address 0 on.

    A burst of several words would occupy an interconnect until its last word exists.

    **Latency** 0 cycles. **Throughput** one item per cycle, or per burst of the memory.

    Parameters
    ----------
    address_bits, longest : int
        As for `BurstWritePort`.
    shape : ShapeLike
        Shape of an item; hashable.

    Members
    -------
    items : In(stream)
        The items.
    restart : In(1)
        The next item is at address 0.
    port : Out(BurstWritePort)
        The port.
    """

    def __init__(self, *, address_bits: int, longest: int, shape: ShapeLike) -> None:
        self.port_signature = BurstWritePort(
            address_bits=address_bits, word_shape=shape, longest=longest
        )
        super().__init__(
            {
                "items": In(stream.Signature(shape)),
                "restart": In(1),
                "port": Out(self.port_signature),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the items; request and word of an item are transferred independently."""
        m = Module()
        requests, words = self.port.requests, self.port.words
        address = Signal.like(requests.payload.address)
        requested, sent, done = Signal(), Signal(), Signal()
        m.d.comb += [
            requests.payload.address.eq(address),
            requests.payload.length.eq(1),
            requests.valid.eq(self.items.valid & ~requested),
            Value.cast(words.payload.word).eq(Value.cast(self.items.payload)),
            words.payload.last.eq(1),
            words.valid.eq(self.items.valid & ~sent),
            done.eq((requested | requests.ready) & (sent | words.ready)),
            self.items.ready.eq(done),
        ]
        with m.If(self.items.valid):
            m.d.sync += [
                requested.eq(~done & (requested | requests.ready)),
                sent.eq(~done & (sent | words.ready)),
                address.eq(address + done),
            ]
        # A job starts before its first instruction arrives: no item is in progress.
        with m.If(self.restart):
            m.d.sync += address.eq(0)
        return m
