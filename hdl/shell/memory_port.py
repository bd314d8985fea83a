"""Ports of an accelerator to regions of an AXI4 memory: a guard and a master each."""

from typing import Any

from amaranth.hdl import Module, Mux, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.shell.axi import Cause, error_layout
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.axi_read_master import AxiReadMaster
from hdl.shell.axi_write_master import AxiWriteMaster
from hdl.shell.region_guard import RegionGuard
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class MemoryPort(Unit):
    """A burst port whose words are in a region of an AXI4 memory.

    The region is that from `first` to `end`. A request outside it reaches no memory, see
    `RegionGuard`.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of both ports.

    Members
    -------
    first, end : In(axi_address_bits)
        Byte addresses of word 0 and of the first byte after the region; multiples of a beat.
    flush, port, clear_error, idle, m_axi
        As in the master.
    error : Out(error)
        The first error of the guard or, if it has none, of the master.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiMasterParameters`.
    """

    writes: bool

    def __init__(self, *, parameters: AxiMasterParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "first": In(p.axi_address_bits),
                "end": In(p.axi_address_bits),
                "flush": In(1),
                "port": In(p.writes if self.writes else p.reads),
                "error": Out(error_layout(p.axi_address_bits)),
                "clear_error": In(1),
                "idle": Out(1),
                "m_axi": Out(p.axi_writes if self.writes else p.axi_reads),
            }
        )

    def guarded(self, m: Module, master: Any) -> None:
        """Connect the guard and a master."""
        p = self.parameters
        m.submodules.guard = guard = RegionGuard(parameters=p)
        m.submodules.master = master
        connect_streams(m, self.port.requests, guard.requests)
        connect_streams(m, guard.granted, master.port.requests)
        connect(m, flipped(self.m_axi), master.m_axi)
        refused = Value.cast(guard.error.cause) != Cause.NONE.value
        m.d.comb += [
            guard.first.eq(self.first),
            guard.end.eq(self.end),
            guard.clear_error.eq(self.clear_error),
            master.base.eq(self.first >> p.byte_bits),
            master.flush.eq(self.flush),
            master.clear_error.eq(self.clear_error),
            self.idle.eq(master.idle),
            Value.cast(self.error).eq(
                Mux(refused, Value.cast(guard.error), Value.cast(master.error))
            ),
        ]


class MemoryReads(MemoryPort):
    """A port of reads.

    A read does not wait for writes of the same region. The user of the ports keeps the order, such
    as by a wait until a port of writes is idle.

    **Latency** and **Throughput** those of `AxiReadMaster`.
    """

    writes = False

    def elaborate(self, platform: object) -> Module:
        """Connect guard and master."""
        m = Module()
        master = AxiReadMaster(parameters=self.parameters)
        self.guarded(m, master)
        connect_streams(m, master.port.words, self.port.words)
        return m


class MemoryWrites(MemoryPort):
    """A port of writes, which is idle when all words have their responses.

    **Latency** and **Throughput** those of `AxiWriteMaster`.
    """

    writes = True

    def elaborate(self, platform: object) -> Module:
        """Connect guard and master."""
        m = Module()
        master = AxiWriteMaster(parameters=self.parameters)
        self.guarded(m, master)
        connect_streams(m, self.port.words, master.port.words)
        return m
