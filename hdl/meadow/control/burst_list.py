"""Bursts of equal length at equal distances: a head's keys after the other's."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.parameters import MeadowParameters
from hdl.unit import Unit


class BurstList(Unit):
    """Request one burst after the other.

    **Latency** 1 cycle. **Throughput** a request a cycle.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    blocks : In(stream)
        Where the bursts are, and how many: at least one.
    requests : Out(stream)
        As of a burst port.
    last : Out(1)
        The request is the list's last.
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

    def elaborate(self, platform: Any) -> Module:
        """Count bursts."""
        m = Module()
        p, requests = self.parameters, self.requests
        blocks = Signal(p.blocks_layout, reset_less=True)
        # The registers are those of the next request.
        m.d.comb += [
            self.blocks.ready.eq(~requests.valid),
            requests.payload.address.eq(blocks.address),
            requests.payload.length.eq(blocks.length),
            self.last.eq(blocks.count == 1),
        ]
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += [blocks.eq(self.blocks.payload), requests.valid.eq(1)]
        # No multiplier: each address is the one before and the spacing.
        with m.If(requests.valid & requests.ready):
            m.d.sync += [
                blocks.address.eq(blocks.address + blocks.spacing),
                blocks.count.eq(blocks.count - 1),
                requests.valid.eq(~self.last),
            ]
        return m
