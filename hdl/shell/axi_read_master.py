"""AXI4 read master that serves a burst port."""

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import connect_address_channel, error_layout
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.burst_splitter import BurstSplitter
from hdl.shell.read_unpacker import ReadUnpacker
from hdl.stream.connect import connect_streams, fork_handshake
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit


class AxiReadMaster(Unit):
    """Read bursts of words through AXI4 and return their words in order.

    Each request becomes AXI4 bursts of whole aligned beats that cross no page of 4 KB. Up to
    `outstanding` bursts are in flight. All have one ID, so that their data return in order. A word
    of several beats is assembled; a beat of several words is output word by word.

    An error response does not stop the stream: the word is output with whatever data the response
    had, and the error is latched with the address of its beat. `error` holds the first error until
    it is cleared.

    **Reset** AXI4 requires the address channel's `arvalid` to be low during reset. The master
    forgets all bursts in flight, so a reset must include the subordinate. Use `flush` to reset only
    the design: it discards requests and words, completes the bursts in flight, and must be asserted
    until `idle`.

    **Latency** 2 cycles from a request to `arvalid`, 1 cycle from the last beat of a word to the
    word. **Throughput** one beat or one word per cycle, whichever is narrower, also across
    requests.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of both ports.

    Members
    -------
    base : In(beat_address_bits)
        Address of word 0 in units of `data_bytes` bytes; sampled with each request.
    hold : In(1)
        Accept no request, because a write that it must observe is in flight; see `pending` of
        `AxiWriteMaster`.
    flush : In(1)
        Discard requests and words; assert it until `idle`.
    port : In(BurstReadPort)
        The design's port.
    error : Out(error)
        `cause` and byte `address` of the first error since `clear_error`.
    clear_error : In(1)
        Clear `error`; an error of the same cycle is latched.
    idle : Out(1)
        No request and no burst is in progress.
    m_axi : Out(AxiReadSignature)
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
                "hold": In(1),
                "flush": In(1),
                "port": In(p.reads),
                "error": Out(error_layout(p.axi_address_bits)),
                "clear_error": In(1),
                "idle": Out(1),
                "m_axi": Out(p.axi_reads),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fork each burst to the address channel and to the queue of bursts in flight."""
        m = Module()
        p = self.parameters
        m.submodules.splitter = splitter = BurstSplitter(parameters=p)
        m.submodules.addresses = addresses = RegisterSlice(shape=p.address_layout)
        # A burst remains in this queue until its last beat: its depth limits those in flight.
        m.submodules.in_flight = in_flight = Fifo(shape=p.burst_layout, depth=p.outstanding)
        m.d.comb += [
            splitter.base.eq(self.base),
            splitter.discard.eq(self.flush),
            splitter.requests.payload.eq(self.port.requests.payload),
            # A held request is not transferred, so no write before it can be in flight.
            splitter.requests.valid.eq(self.port.requests.valid & ~self.hold),
            self.port.requests.ready.eq(splitter.requests.ready & ~self.hold),
            addresses.source.payload.addr.eq(splitter.bursts.payload.beat << p.byte_bits),
            addresses.source.payload.len.eq(splitter.bursts.payload.more),
            in_flight.source.payload.eq(splitter.bursts.payload),
            splitter.bursts.ready.eq(
                fork_handshake(m, splitter.bursts.valid, [addresses.source, in_flight.source])
            ),
            self.idle.eq(splitter.empty & (in_flight.waiting == 0)),
        ]
        connect_address_channel(m, addresses.sink, self.m_axi, "ar", data_bytes=p.data_bytes)
        m.submodules.unpacker = unpacker = ReadUnpacker(parameters=p)
        connect_streams(m, in_flight.sink, unpacker.bursts)
        # The path from the design's `ready` to `rready` ends at this slice.
        m.submodules.beats = beats = RegisterSlice(shape=p.read_beat_layout)
        beat = beats.source.payload
        m.d.comb += [
            beat.data.eq(self.m_axi.rdata),
            beat.response.eq(self.m_axi.rresp),
            beat.last.eq(self.m_axi.rlast),
            beat.id.eq(self.m_axi.rid),
            beats.source.valid.eq(self.m_axi.rvalid),
            self.m_axi.rready.eq(beats.source.ready),
        ]
        connect_streams(m, beats.sink, unpacker.beats)
        connect_streams(m, unpacker.words, self.port.words)
        m.d.comb += [
            unpacker.flush.eq(self.flush),
            unpacker.clear_error.eq(self.clear_error),
            self.error.eq(unpacker.error),
        ]
        return m
