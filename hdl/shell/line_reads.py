"""Address generator of VEDA's reads: bursts of lines of all memory channels."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.stream.connect import fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.instructions import Space

REQUESTS = 4
"""Requests that each channel stores: as many as passes that VEDA issues ahead."""


class LineReads(Unit):
    """Request the lines of each memory channel at a burst port of its own.

    A burst of keys or values is requested when all earlier writes are visible. A line's address in
    its region is the fields of VEDA's address that the region uses, concatenated.

    **Latency** 0 cycles. **Throughput** one line of each channel per cycle.

    Parameters
    ----------
    parameters : VedaAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    reads : In(stream)
        The bursts, see `Veda`.
    words : Out(stream)
        Their lines, one of each channel.
    ports : Out(array of BurstReadPort)
        The port of each channel.
    regions : Out(array)
        The region of the request that a port offers, an index of `SPACES`.
    written : In(1)
        All writes of keys and values are visible.
    """

    def __init__(self, *, parameters: VedaAxiParameters) -> None:
        self.parameters = p = parameters
        self.port = BurstReadPort(
            address_bits=p.address_bits, word_shape=p.line_bits, longest=p.longest
        )
        channels = p.veda.channels
        super().__init__(
            {
                "reads": In(stream.Signature(p.veda.read_layout)),
                "words": Out(stream.Signature(p.veda.beat_layout)),
                "ports": Out(self.port).array(channels),
                "regions": Out(Space).array(channels),
                "written": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store a request per channel, and join the lines of all channels."""
        m = Module()
        veda, reads = self.parameters.veda, self.reads.payload
        stored = []
        for channel, port in enumerate(self.ports):
            # `ready` of a guarded port depends on its request. A FIFO for each channel lets all
            # channels accept a burst in the same cycle.
            m.submodules[f"requests_{channel}"] = fifo = Fifo(
                shape=veda.address_layout.size + len(Value.cast(reads.beats)), depth=REQUESTS
            )
            stored.append(fifo)
            m.d.comb += fifo.source.payload.eq(
                Cat(Value.cast(reads.addresses[channel]), reads.beats)
            )
            address = veda.address_layout(fifo.sink.payload[: veda.address_layout.size])
            line, layer = address["line"], address["layer"]
            places = (
                Cat(line[: veda.cache_line.size], layer),
                Cat(line[: veda.weight_line.size], layer),
                line[: veda.angle_line.size],
                # This address continues from the field `line` into `layer`.
                Cat(line, layer)[: veda.vocabulary_line.size],
            )
            with m.Switch(address["space"]):
                for space, place in zip(Space, places, strict=True):
                    with m.Case(space):
                        m.d.comb += port.requests.payload.address.eq(place)
            m.d.comb += [
                self.regions[channel].eq(address["space"]),
                port.requests.payload.length.eq(fifo.sink.payload[veda.address_layout.size :]),
                port.requests.valid.eq(fifo.sink.valid),
                fifo.sink.ready.eq(port.requests.ready),
            ]
        # All channels of a burst are in one space.
        cached = reads.addresses[0]["space"] == Space.CACHE
        permit = ~cached | self.written
        sinks = [fifo.source for fifo in stored]
        # A beat of the arrays is a line of each channel; a channel that is ahead waits.
        words = [port.words for port in self.ports]
        m.d.comb += [
            self.reads.ready.eq(fork_handshake(m, self.reads.valid & permit, sinks) & permit),
            Value.cast(self.words.payload).eq(Cat(one.payload.word for one in words)),
            self.words.valid.eq(join_handshake(m, words, self.words.ready)),
        ]
        return m
