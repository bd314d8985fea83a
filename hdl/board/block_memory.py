"""On-chip memory for several AXI4 masters."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data

from hdl.board.axi_memory import AxiMemory
from hdl.memory.memory import Memory
from hdl.stream.arbiter import Arbiter


class BlockMemory(AxiMemory):
    """A memory of block RAM, with one port of reads and one of writes, see `AxiMemory`.

    A write is visible to every burst of reads that is accepted after its response.

    **Latency** 3 cycles from an address to the first beat, 1 cycle from the last beat to the
    response. **Throughput** one beat of reads and one of writes per cycle for all ports together;
    one beat of reads per 2 cycles and one beat of writes per cycle for a single port.

    Parameters
    ----------
    memory_bytes : int
        Bytes of the memory, a power of two from 4096 on.
    address_bits, data_bytes : int
        Dimensions of the AXI4 ports, as in `hdl.shell.axi`.
    readers, writers : int
        Number of masters that read, and that write, 2 to 64 each.

    Members
    -------
    reads : In(AxiReadSignature).array(readers)
        The ports of reads.
    writes : In(AxiWriteSignature).array(writers)
        The ports of writes.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(
        self, *, memory_bytes: int, address_bits: int, data_bytes: int, readers: int, writers: int
    ) -> None:
        super().__init__(
            memory_bytes=memory_bytes,
            address_bits=address_bits,
            data_bytes=data_bytes,
            readers=readers,
            writers=writers,
        )

    def elaborate(self, platform: object) -> Module:
        """Connect reads and writes to the two ports of the memory."""
        m = Module()
        m.submodules.memory = memory = Memory(
            depth=self.depth, width=8 * self.data_bytes, granularity=8
        )
        self._serve_reads(m, memory)
        self._serve_writes(m, memory)
        return m

    def _serve_reads(self, m: Module, memory: Memory) -> None:
        """Read the next beat of a port whose data register is free."""
        m.submodules.read_arbiter = arbiter = Arbiter(shape=range(self.depth), sources=self.readers)
        granted = arbiter.sink
        m.d.comb += [
            granted.ready.eq(1),
            memory.read_enable.eq(granted.valid),
            memory.read_address.eq(granted.payload["item"]),
        ]
        for port, source in zip(self.reads, arbiter.sources, strict=True):
            coming = Signal()
            burst, active = self._serve_reader(
                m, port, source, waiting=coming, arrives=coming, word=memory.read_data
            )
            m.d.comb += [
                source.valid.eq(active & ~coming & (~port.rvalid | port.rready)),
                source.payload["item"].eq(burst.beat),
            ]
            m.d.sync += coming.eq(source.valid & source.ready)

    def _serve_writes(self, m: Module, memory: Memory) -> None:
        """Write the next beat of a port that has accepted a burst."""
        width = 8 * self.data_bytes
        beat = data.StructLayout(
            {"address": range(self.depth), "data": width, "strobe": self.data_bytes}
        )
        m.submodules.write_arbiter = arbiter = Arbiter(shape=beat, sources=self.writers)
        granted = arbiter.sink
        item = granted.payload["item"]
        m.d.comb += [
            granted.ready.eq(1),
            memory.write_address.eq(item.address),
            memory.write_data.eq(item.data),
            memory.write_enable.eq(Mux(granted.valid, item.strobe, 0)),
        ]
        for port, source in zip(self.writes, arbiter.sources, strict=True):
            self._serve_writer(m, port, source)
