"""On-chip memory for several AXI4 masters."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two, require_range
from hdl.shell.axi import AxiReadSignature, AxiWriteSignature, Response
from hdl.stream.arbiter import Arbiter
from hdl.unit import Unit


class BlockMemory(Unit):
    """A memory from address 0 on, which serves one burst at a time of each port.

    The two ports of the memory are granted beat by beat, in round-robin order: an accelerator may
    accept no data at one of its ports until it has received data at another one. The masters send
    incrementing bursts of whole beats that cross no page, as those of `hdl.shell` do. A burst
    outside the memory is answered with DECERR; its beats write nothing.

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
        require_range("address_bits", address_bits, 12, 64)
        require_power_of_two("memory_bytes", memory_bytes, 4096, 1 << address_bits)
        self.depth, self.data_bytes = memory_bytes // data_bytes, data_bytes
        self.address_bits, self.size_bits = address_bits, exact_log2(memory_bytes)
        self.readers, self.writers = readers, writers
        port = {"address_bits": address_bits, "data_bytes": data_bytes}
        super().__init__(
            {
                "reads": In(AxiReadSignature(**port)).array(readers),
                "writes": In(AxiWriteSignature(**port)).array(writers),
            }
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

    def _accepted(self, m: Module, port: Any, prefix: str, accepts: Value) -> tuple[Any, Signal]:
        """Accept a burst of a port; return the burst, whose `beat` advances, and its state."""
        layout = data.StructLayout({"beat": range(self.depth), "more": 8, "id": 1, "inside": 1})
        burst, active = Signal(layout), Signal()
        address = getattr(port, f"{prefix}addr")
        m.d.comb += getattr(port, f"{prefix}ready").eq(accepts & ~active)
        with m.If(getattr(port, f"{prefix}valid") & accepts & ~active):
            m.d.sync += [
                active.eq(1),
                burst.beat.eq(address[exact_log2(self.data_bytes) : self.size_bits]),
                burst.more.eq(getattr(port, f"{prefix}len")),
                burst.id.eq(getattr(port, f"{prefix}id")),
                # The memory has whole pages, and a burst is within one.
                burst.inside.eq(address[self.size_bits :] == 0),
            ]
        return burst, active

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
            # The answer of a beat is complete before the next burst is accepted.
            coming, last = Signal(), Signal()
            burst, active = self._accepted(m, port, "ar", ~coming & ~port.rvalid)
            m.d.comb += [
                source.valid.eq(active & ~coming & (~port.rvalid | port.rready)),
                source.payload["item"].eq(burst.beat),
                port.rid.eq(burst.id),
                Value.cast(port.rresp).eq(self._response(burst.inside)),
            ]
            m.d.sync += coming.eq(source.valid & source.ready)
            with m.If(port.rready):
                m.d.sync += port.rvalid.eq(0)
            with m.If(coming):
                m.d.sync += [port.rvalid.eq(1), port.rdata.eq(memory.read_data)]
                m.d.sync += port.rlast.eq(last)
            with m.If(source.valid & source.ready):
                m.d.sync += [
                    last.eq(burst.more == 0),
                    burst.beat.eq(burst.beat + 1),
                    burst.more.eq(burst.more - 1),
                    active.eq(burst.more != 0),
                ]

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
            burst, active = self._accepted(m, port, "aw", ~port.bvalid)
            m.d.comb += [
                source.valid.eq(active & port.wvalid),
                source.payload["item"].address.eq(burst.beat),
                source.payload["item"].data.eq(port.wdata),
                source.payload["item"].strobe.eq(Mux(burst.inside, port.wstrb, 0)),
                port.wready.eq(source.ready & active),
                port.bid.eq(burst.id),
                Value.cast(port.bresp).eq(self._response(burst.inside)),
            ]
            with m.If(port.bready):
                m.d.sync += port.bvalid.eq(0)
            with m.If(source.valid & source.ready):
                m.d.sync += burst.beat.eq(burst.beat + 1)
                with m.If(port.wlast):
                    m.d.sync += [active.eq(0), port.bvalid.eq(1)]

    @staticmethod
    def _response(inside: Value) -> Value:
        """Return the code of a response."""
        return Mux(inside, Response.OKAY.value, Response.DECERR.value)
