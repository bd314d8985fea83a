"""AXI4 write master that serves a burst port."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import Cause, Response, connect_address_channel, error_layout
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.burst_splitter import BurstSplitter
from hdl.shell.error_latch import ErrorLatch
from hdl.shell.write_packer import WritePacker
from hdl.stream.connect import connect_streams, fork_handshake
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit


class AxiWriteMaster(Unit):
    """Write bursts of words through AXI4, and count the responses.

    Each request becomes AXI4 bursts of whole aligned beats that cross no page of 4 KB; strobes
    select the words of a partial beat. Data do not wait for their address to be accepted, because a
    subordinate may wait for data before it accepts an address. Words wait for their request.

    The burst port requires that a word is visible to every later read request. On AXI4 a write is
    visible when its response arrives: `pending` is asserted until then, and holds the read masters
    of the same memory, see `hold` of `AxiReadMaster`.

    `error` holds the first error response with the address of the burst's first beat.

    **Reset** AXI4 requires `awvalid` and `wvalid` to be low during reset. The master forgets all
    bursts in flight, so a reset must include the subordinate. Use `flush` to reset only the design:
    it discards requests and words, completes the bursts in flight with beats that write no byte,
    and must be asserted until `idle`.

    **Latency** 2 cycles from a request to `awvalid`, 1 cycle from a word to its first beat.
    **Throughput** one beat or one word per cycle, whichever is narrower, also across requests.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of both ports.

    Members
    -------
    base : In(beat_address_bits)
        Address of word 0 in units of `data_bytes` bytes; sampled with each request.
    flush : In(1)
        Discard requests and words; assert it until `idle`.
    port : In(BurstWritePort)
        The design's port; the lengths of requests divide the words into bursts, and `last` of the
        words is not used.
    pending : Out(1)
        A burst has no response yet; asserted from the cycle after its first word can be accepted.
    error : Out(error)
        `cause` and byte `address` of the first error since `clear_error`.
    clear_error : In(1)
        Clear `error`; an error of the same cycle is latched.
    idle : Out(1)
        No request and no burst is in progress.
    m_axi : Out(AxiWriteSignature)
        The AXI4 port; all its outputs depend on registers only.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiMasterParameters`.
    """

    def __init__(self, *, parameters: AxiMasterParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "base": In(p.beat_address_bits),
                "flush": In(1),
                "port": In(p.writes),
                "pending": Out(1),
                "error": Out(error_layout(p.axi_address_bits)),
                "clear_error": In(1),
                "idle": Out(1),
                "m_axi": Out(p.axi_writes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fork each burst to the address channel, to the data, and to the expected responses."""
        m = Module()
        p = self.parameters
        m.submodules.splitter = splitter = BurstSplitter(parameters=p)
        m.submodules.addresses = addresses = RegisterSlice(shape=p.address_layout)
        m.submodules.bursts = bursts = Fifo(shape=p.burst_layout, depth=p.outstanding)
        # A burst remains in this queue until its response: its depth limits those in flight.
        m.submodules.in_flight = in_flight = Fifo(shape=p.beat_address_bits, depth=p.outstanding)
        burst = splitter.bursts.payload
        sinks = [addresses.source, bursts.source, in_flight.source]
        m.d.comb += [
            splitter.base.eq(self.base),
            splitter.discard.eq(self.flush),
            addresses.source.payload.addr.eq(burst.beat << p.byte_bits),
            addresses.source.payload.len.eq(burst.more),
            bursts.source.payload.eq(burst),
            in_flight.source.payload.eq(burst.beat),
            splitter.bursts.ready.eq(fork_handshake(m, splitter.bursts.valid, sinks)),
            self.pending.eq(in_flight.waiting != 0),
            self.idle.eq(splitter.empty & ~self.pending),
        ]
        # Data may precede their address: only `bursts` and the words decide when they are sent.
        connect_streams(m, self.port.requests, splitter.requests)
        connect_address_channel(m, addresses.sink, self.m_axi, "aw", data_bytes=p.data_bytes)
        m.submodules.packer = packer = WritePacker(parameters=p)
        connect_streams(m, bursts.sink, packer.bursts)
        connect_streams(m, self.port.words, packer.words)
        m.submodules.beats = beats = RegisterSlice(shape=p.write_beat_layout)
        connect_streams(m, packer.beats, beats.source)
        m.d.comb += [
            packer.flush.eq(self.flush),
            self.m_axi.wdata.eq(beats.sink.payload.data),
            self.m_axi.wstrb.eq(beats.sink.payload.strobe),
            self.m_axi.wlast.eq(beats.sink.payload.last),
            self.m_axi.wvalid.eq(beats.sink.valid),
            beats.sink.ready.eq(self.m_axi.wready),
        ]
        response = Value.cast(self.m_axi.bresp)
        wrong = (response != Response.OKAY.value) | self.m_axi.bid
        m.submodules.latch = latch = ErrorLatch(address_bits=p.axi_address_bits)
        m.d.comb += [
            # Each burst has its place in the queue, so a response never waits.
            self.m_axi.bready.eq(1),
            in_flight.sink.ready.eq(self.m_axi.bvalid),
            latch.occurs.eq(self.m_axi.bvalid & wrong),
            Value.cast(latch.cause).eq(
                Mux(response != Response.OKAY.value, response, Cause.UNEXPECTED.value)
            ),
            latch.address.eq(in_flight.sink.payload << p.byte_bits),
            latch.clear.eq(self.clear_error),
            self.error.eq(latch.error),
        ]
        return m
