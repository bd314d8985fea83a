"""Address generator of LAD's weights: a burst port for each vector unit."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.stream.connect import fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUESTS = 2
"""Bursts that each port stores: the next layer's is ready when a layer's words end."""


class UnitWeights(Unit):
    """Request the weights of each vector unit at a port of its own, and join their words.

    The weights of a unit are consecutive words: all of them need the bandwidth of all ports.

    **Latency** 0 cycles. **Throughput** one word of each unit per cycle.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    requests : In(stream)
        Bursts, with addresses in the words of a unit.
    weights : Out(stream)
        As `weights` of `Lad`.
    ports : Out(array of BurstReadPort)
        The port of each unit.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        linear = p.lad.tile.linear
        port = BurstReadPort(
            address_bits=p.address_bits,
            word_shape=linear.vector.vector_layout.size,
            longest=p.longest,
        )
        super().__init__(
            {
                "requests": In(stream.Signature(port.request_layout)),
                "weights": Out(stream.Signature(linear.weights_layout)),
                "ports": Out(port).array(linear.units),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store each request per unit, at the place of the unit's words."""
        m = Module()
        request, sinks = self.requests.payload, []
        for unit, port in enumerate(self.ports):
            # `ready` of a guarded port depends on its request. A FIFO for each unit lets all of
            # them accept a burst in the same cycle.
            m.submodules[f"requests_{unit}"] = fifo = Fifo(shape=request.shape(), depth=REQUESTS)
            sinks.append(fifo.source)
            m.d.comb += [
                fifo.source.payload.eq(request),
                port.requests.payload.address.eq(
                    fifo.sink.payload.address + unit * self.parameters.unit_words
                ),
                port.requests.payload.length.eq(fifo.sink.payload.length),
                port.requests.valid.eq(fifo.sink.valid),
                fifo.sink.ready.eq(port.requests.ready),
            ]
        # A unit that is ahead waits for the others.
        words = [port.words for port in self.ports]
        m.d.comb += [
            self.requests.ready.eq(fork_handshake(m, self.requests.valid, sinks)),
            Value.cast(self.weights.payload).eq(Cat(one.payload.word for one in words)),
            self.weights.valid.eq(join_handshake(m, words, self.weights.ready)),
        ]
        return m
