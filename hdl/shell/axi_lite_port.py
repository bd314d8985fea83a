"""AXI4-Lite port of a register block."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.shell.axi import AxiLiteSignature, Response
from hdl.unit import Unit


class AxiLitePort(Unit):
    """Convert AXI4-Lite accesses to writes and reads of one cycle.

    One write and one read are in progress at a time. Each part of an access is stored, so that no
    output of the port depends on an input of the same cycle.

    **Latency** 2 cycles from an address, or from the later one of address and data, to the
    response. **Throughput** one read and one write per 3 cycles.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address, 12 to 64.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The port.
    write, write_address, write_data, write_whole : Out
        Asserted for one cycle: write 32 bits; `write_whole` if all four strobes are set.
    write_response : In(Response)
        Response to the write of this cycle.
    read, read_address : Out
        Asserted for one cycle: read 32 bits.
    read_data, read_response : In(32), In(Response)
        Data of, and response to, the read of this cycle.

    Raises
    ------
    ValueError
        If `address_bits` is out of range.
    """

    def __init__(self, *, address_bits: int) -> None:
        require_range("address_bits", address_bits, 12, 64)
        super().__init__(
            {
                "s_axi": In(AxiLiteSignature(address_bits=address_bits)),
                "write": Out(1),
                "write_address": Out(address_bits),
                "write_data": Out(32),
                "write_whole": Out(1),
                "write_response": In(Response),
                "read": Out(1),
                "read_address": Out(address_bits),
                "read_data": In(32),
                "read_response": In(Response),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store an access; execute it when it is complete and its response has room."""
        m = Module()
        axi = self.s_axi
        has_address, has_data, has_read = Signal(), Signal(), Signal()
        m.d.comb += [
            axi.awready.eq(~has_address),
            axi.wready.eq(~has_data),
            axi.arready.eq(~has_read),
            self.write.eq(has_address & has_data & ~axi.bvalid),
            self.read.eq(has_read & ~axi.rvalid),
        ]
        # A part is accepted only while none is stored: never in the cycle of an execution.
        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [has_address.eq(1), self.write_address.eq(axi.awaddr)]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += [
                has_data.eq(1),
                self.write_data.eq(axi.wdata),
                self.write_whole.eq(axi.wstrb.all()),
            ]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [has_read.eq(1), self.read_address.eq(axi.araddr)]
        # An execution, which follows, has priority: it occurs only without a response.
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.rready):
            m.d.sync += axi.rvalid.eq(0)
        with m.If(self.write):
            m.d.sync += [has_address.eq(0), has_data.eq(0)]
            m.d.sync += [axi.bvalid.eq(1), axi.bresp.eq(self.write_response)]
        with m.If(self.read):
            m.d.sync += [has_read.eq(0), axi.rvalid.eq(1)]
            m.d.sync += [axi.rdata.eq(self.read_data), axi.rresp.eq(self.read_response)]
        return m
