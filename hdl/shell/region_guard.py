"""Check of a burst port's requests against a region of memory."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import Cause, error_layout
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.error_latch import ErrorLatch
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class RegionGuard(Unit):
    """Pass the requests whose words are within a region; refuse the first other one.

    A refused request is never transferred, so that neither it nor a later one reaches the memory.
    The error is that of a decoder which has no subordinate at the address, DECERR.

    **Latency** 0 cycles; 1 cycle to `error`. **Throughput** one request per cycle.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of the master.

    Members
    -------
    first, end : In(axi_address_bits)
        Byte address of word 0, and that of the first byte after the region.
    requests : In(stream)
        First `address` and `length` in words.
    granted : Out(stream)
        The requests of at most `longest` words that are within the region.
    error : Out(error)
        DECERR and the byte address of the refused request's first word.
    clear_error : In(1)
        Clear `error`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiMasterParameters`.
    """

    def __init__(self, *, parameters: AxiMasterParameters) -> None:
        self.parameters = p = parameters
        requests = stream.Signature(p.reads.request_layout)
        super().__init__(
            {
                "first": In(p.axi_address_bits),
                "end": In(p.axi_address_bits),
                "requests": In(requests),
                "granted": Out(requests),
                "error": Out(error_layout(p.axi_address_bits)),
                "clear_error": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare the end of a request with the end of the region; no sum wraps."""
        m = Module()
        p, request = self.parameters, self.requests.payload
        m.submodules.latch = latch = ErrorLatch(address_bits=p.axi_address_bits)
        end = self.first + (request.address + request.length) * p.word_bytes
        inside = (request.length <= p.longest) & (end <= self.end)
        connect_streams(m, self.requests, self.granted)
        with m.If(~inside):
            m.d.comb += [self.granted.valid.eq(0), self.requests.ready.eq(0)]
        m.d.comb += [
            latch.occurs.eq(self.requests.valid & ~inside),
            Value.cast(latch.cause).eq(Cause.DECERR.value),
            latch.address.eq(self.first + request.address * p.word_bytes),
            latch.clear.eq(self.clear_error),
            self.error.eq(latch.error),
        ]
        return m
