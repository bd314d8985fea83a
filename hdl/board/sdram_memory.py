"""Memory of SDRAM for several AXI4 masters, through LiteDRAM's native port."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from hdl.board.axi_memory import AxiMemory
from hdl.board.sdram_port import NativeSignature
from hdl.stream.arbiter import Arbiter
from hdl.stream.fifo import Fifo


class SdramMemory(AxiMemory):
    """A memory at a native port, which all reads and writes share, see `AxiMemory`.

    Each beat is a command. A port requests a beat when its data register is empty, so that the data
    can be stored when they arrive; the reads of several ports are in flight at the same time. A
    burst of writes is answered when the native port has accepted its last data; reads whose
    commands follow return these data.

    **Latency** 2 cycles from an address to the command, 1 cycle from the data to the beat, 1 cycle
    from the acceptance of the last data to the response. **Throughput** one beat per command; one
    beat of reads per latency of the native port and 2 cycles for a single port.

    Parameters
    ----------
    memory_bytes : int
        Bytes of the memory, a power of two from 4096 on.
    address_bits, data_bytes : int
        Dimensions of the AXI4 ports, as in `hdl.shell.axi`.
    readers, writers : int
        Number of masters that read, and that write, at most 64 together.

    Members
    -------
    reads : In(AxiReadSignature).array(readers)
        The ports of reads.
    writes : In(AxiWriteSignature).array(writers)
        The ports of writes.
    native : Out(NativeSignature)
        The memory; a word is a beat.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(
        self, *, memory_bytes: int, address_bits: int, data_bytes: int, readers: int, writers: int
    ) -> None:
        word_bits = ceil_log2(memory_bytes // data_bytes)
        native = NativeSignature(address_bits=word_bits, data_bytes=data_bytes)
        super().__init__(
            memory_bytes=memory_bytes,
            address_bits=address_bits,
            data_bytes=data_bytes,
            readers=readers,
            writers=writers,
            members={"native": Out(native)},
        )

    def elaborate(self, platform: object) -> Module:
        """Send the granted beat as a command; return data to the port that requested them."""
        m = Module()
        native, width = self.native, 8 * self.data_bytes
        beat = data.StructLayout(
            {"address": range(self.depth), "data": width, "strobe": self.data_bytes, "write": 1}
        )
        m.submodules.arbiter = arbiter = Arbiter(shape=beat, sources=self.readers + self.writers)
        # A port has at most one read in flight.
        m.submodules.in_flight = in_flight = Fifo(shape=range(self.readers), depth=self.readers)
        granted = arbiter.sink
        item = granted.payload["item"]
        # The command and the data of the granted beat that are accepted in an earlier cycle.
        commanded, written = Signal(), Signal()
        commands = commanded | (native.cmd_valid & native.cmd_ready)
        writes = written | (native.wdata_valid & native.wdata_ready)
        m.d.comb += [
            native.cmd_valid.eq(granted.valid & ~commanded),
            native.cmd_we.eq(item.write),
            native.cmd_addr.eq(item.address),
            native.wdata_valid.eq(granted.valid & item.write & ~written),
            native.wdata_data.eq(item.data),
            native.wdata_we.eq(item.strobe),
            granted.ready.eq(commands & (writes | ~item.write)),
            in_flight.source.valid.eq(granted.valid & granted.ready & ~item.write),
            in_flight.source.payload.eq(granted.payload["source"]),
            in_flight.sink.ready.eq(native.rdata_valid),
        ]
        m.d.sync += [commanded.eq(commands & ~granted.ready), written.eq(writes & ~granted.ready)]
        for number, port in enumerate(self.reads):
            source, waiting, arrives = arbiter.sources[number], Signal(), Signal()
            burst, active = self._serve_reader(
                m, port, source, waiting=waiting, arrives=arrives, word=native.rdata_data
            )
            m.d.comb += [
                arrives.eq(native.rdata_valid & (in_flight.sink.payload == number)),
                source.valid.eq(active & ~waiting & ~port.rvalid),
                source.payload["item"].address.eq(burst.beat),
            ]
            with m.If(arrives):
                m.d.sync += waiting.eq(0)
            with m.If(source.valid & source.ready):
                m.d.sync += waiting.eq(1)
        for port, source in zip(self.writes, arbiter.sources[self.readers :], strict=True):
            m.d.comb += source.payload["item"].write.eq(1)
            self._serve_writer(m, port, source)
        return m
