"""Bursts of equal length at equal distances, such as the keys of one head after another."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.parameters import MeadowParameters
from hdl.unit import Unit


class BurstList(Unit):
    """Burst requests whose addresses are an arithmetic series.

    **Latency** 1 cycle. **Throughput** one request per cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Widths of addresses, lengths and counts.

    Members
    -------
    blocks : In(stream)
        First address, spacing, length, and number of the bursts, at least one.
    requests : Out(stream)
        Requests of a burst port.
    last : Out(1)
        The current request is the last of the list.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        request: data.StructLayout = p.reads(1).request_layout
        super().__init__(
            {
                "blocks": In(stream.Signature(p.blocks_layout)),
                "requests": Out(stream.Signature(request)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the bursts down and advance the address."""
        m = Module()
        p, requests = self.parameters, self.requests
        blocks = Signal(p.blocks_layout, reset_less=True)
        # The register holds the next request.
        m.d.comb += [
            self.blocks.ready.eq(~requests.valid),
            requests.payload.address.eq(blocks.address),
            requests.payload.length.eq(blocks.length),
            self.last.eq(blocks.count == 1),
        ]
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += [blocks.eq(self.blocks.payload), requests.valid.eq(1)]
        # Each address is the previous one plus the spacing, so that no multiplier is needed.
        with m.If(requests.valid & requests.ready):
            m.d.sync += [
                blocks.address.eq(blocks.address + blocks.spacing),
                blocks.count.eq(blocks.count - 1),
                requests.valid.eq(~self.last),
            ]
        return m
