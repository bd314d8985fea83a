"""Address generator of VEDA's writes: lines of keys and values, one after the other."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstWritePort
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.unit import Unit


class LineWrites(Unit):
    """Write the lines of the enabled memory channels at one burst port.

    A port for all channels suffices: a token writes its keys and values once per layer.

    **Latency** 0 cycles. **Throughput** one channel per cycle.

    Parameters
    ----------
    parameters : VedaAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    writes : In(stream)
        An address, an enable and a line for each channel, see `Veda`.
    port : Out(BurstWritePort)
        The port; each line is a burst.
    """

    def __init__(self, *, parameters: VedaAxiParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "writes": In(stream.Signature(p.veda.write_layout)),
                "port": Out(
                    BurstWritePort(
                        address_bits=p.address_bits, word_shape=p.line_bits, longest=p.longest
                    )
                ),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the channels; request and line of a channel are transferred independently."""
        m = Module()
        p, veda, writes = self.parameters, self.parameters.veda, self.writes.payload
        channel = Signal(range(veda.channels))
        requested, sent = Signal(), Signal()
        address = veda.address_layout(
            Array(Value.cast(writes.addresses[n]) for n in range(veda.channels))[channel]
        )
        enabled = writes.enables.bit_select(channel, 1)
        requests, words = self.port.requests, self.port.words
        done, last = Signal(), Signal()
        # VEDA writes keys and values only: the address has no other space. Without an enable, a
        # channel takes a cycle in which nothing is transferred.
        m.d.comb += [
            requests.payload.address.eq(
                Cat(address["line"][: veda.cache_line.size], address["layer"])
            ),
            requests.payload.length.eq(1),
            requests.valid.eq(self.writes.valid & enabled & ~requested),
            words.payload.word.eq(Value.cast(writes.words).word_select(channel, p.line_bits)),
            words.payload.last.eq(1),
            words.valid.eq(self.writes.valid & enabled & ~sent),
            done.eq(~enabled | ((requested | requests.ready) & (sent | words.ready))),
            last.eq(channel == veda.channels - 1),
            self.writes.ready.eq(done & last),
        ]
        with m.If(self.writes.valid):
            m.d.sync += [
                requested.eq(~done & (requested | requests.ready)),
                sent.eq(~done & (sent | words.ready)),
            ]
            with m.If(done):
                m.d.sync += channel.eq(Mux(last, 0, channel + 1))
        return m
