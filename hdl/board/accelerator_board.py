"""The top of a board: an accelerator with the AXI shell, its memory, and a serial host."""

from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.board.block_memory import BlockMemory
from hdl.board.board_parameters import BoardParameters
from hdl.board.host_bridge import HostBridge
from hdl.board.sdram_memory import SdramMemory
from hdl.board.sdram_port import ControlSignature
from hdl.board.sdram_start import SdramStart
from hdl.board.serial_receiver import SerialReceiver
from hdl.board.serial_transmitter import SerialTransmitter
from hdl.shell.catalog import accelerator_unit
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

RESET_CYCLES = 16
"""Cycles of reset after the configuration, and after the button is released."""

SDRAM_PAUSE = 20_000
"""Cycles before the first command to the SDRAM: 0.8 ms at 25 MHz; chips need 0.1 or 0.2 ms."""


class AcceleratorBoard(Unit):
    """An accelerator, a memory at its AXI4 ports, and a bridge to a serial line.

    `hdl.board.protocol` defines the frames on the line. The memory is block RAM, or SDRAM at
    LiteDRAM's core, which is connected outside this unit.

    **Reset** An FPGA of the ECP5 family sets all registers to 0 when it is configured. The design
    is then reset for `RESET_CYCLES` cycles, and after `rst`, which may be asynchronous.

    **Latency** that of the accelerator, with the latency of `BlockMemory` or `SdramMemory`.
    **Throughput** with block RAM, one beat of reads and one beat of writes per cycle for all ports
    together.

    Parameters
    ----------
    parameters : BoardParameters
        Dimensions of the accelerator, the memory and the serial line.

    Members
    -------
    serial_in, serial_out : In(1), Out(1)
        The serial line; 1 while idle.
    leds : Out(3)
        The design is not reset; the accelerator requests an interrupt; the last answer to the host
        is an error.
    wifi_gpio0 : Out(1)
        1, with which the radio module of the ULX3S starts its program.
    native, control, memory_reset : Out(NativeSignature), Out(ControlSignature), Out(1)
        LiteDRAM's core, with SDRAM only.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `BoardParameters`.
    """

    def __init__(self, *, parameters: BoardParameters) -> None:
        self.parameters = parameters
        members = {"serial_in": In(1), "serial_out": Out(1), "leds": Out(3), "wifi_gpio0": Out(1)}
        reads = sum(not port.writes for port in parameters.shell.ports)
        # The bridge is the last master that reads, and the last one that writes.
        memory = SdramMemory if parameters.sdram else BlockMemory
        self._memory = memory(
            memory_bytes=parameters.memory_bytes,
            address_bits=parameters.shell.axi_address_bits,
            data_bytes=parameters.shell.data_bytes,
            readers=reads + 1,
            writers=len(parameters.shell.ports) - reads + 1,
        )
        if isinstance(self._memory, SdramMemory):
            members |= {
                "native": self._memory.signature.members["native"],
                "control": Out(ControlSignature()),
                "memory_reset": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Connect the accelerator to the memory and to the bridge, and reset all parts."""
        m = Module()
        p = self.parameters
        shell = p.shell
        # Two stages synchronise the button; zeros are shifted in while it is pressed.
        ready, reset = Signal(2 + RESET_CYCLES, reset_less=True), Signal(reset_less=True)
        m.d.sync += [ready.eq(Cat(~ResetSignal(), ready[:-1])), reset.eq(~ready[2:].all())]
        m.domains.board = ClockDomain(local=True)
        m.d.comb += [ClockSignal("board").eq(ClockSignal()), ResetSignal("board").eq(reset)]

        def placed(name: str, unit: Any) -> Any:
            m.submodules[name] = DomainRenamer("board")(unit)
            return unit

        reads = [port.name for port in shell.ports if not port.writes]
        writes = [port.name for port in shell.ports if port.writes]
        port = {"address_bits": shell.axi_address_bits, "data_bytes": shell.data_bytes}
        accelerator = placed("accelerator", accelerator_unit(shell)(parameters=shell))
        memory = placed("memory", self._memory)
        if p.sdram:
            start = placed("start", SdramStart(pause=SDRAM_PAUSE))
            connect(m, start.control, flipped(self.control))
            connect(m, memory.native, flipped(self.native))
            m.d.comb += self.memory_reset.eq(reset)
        bridge = placed(
            "bridge", HostBridge(memory_bytes=p.memory_bytes, silence=p.silence, **port)
        )
        receiver = placed("receiver", SerialReceiver(divisor=p.divisor))
        transmitter = placed("transmitter", SerialTransmitter(divisor=p.divisor))
        for names, ports, own in (
            (reads, memory.reads, bridge.m_axi_reads),
            (writes, memory.writes, bridge.m_axi_writes),
        ):
            masters = [*(getattr(accelerator, f"m_axi_{name}") for name in names), own]
            for master, subordinate in zip(masters, ports, strict=True):
                connect(m, master, subordinate)
        connect(m, bridge.m_axi_lite, accelerator.s_axi)
        connect_streams(m, bridge.answers, transmitter.bytes)
        m.d.comb += [
            receiver.line.eq(self.serial_in),
            bridge.byte.eq(receiver.byte),
            bridge.valid.eq(receiver.valid),
            bridge.corrupted.eq(receiver.corrupted),
            self.serial_out.eq(transmitter.line),
            self.leds.eq(Cat(~reset, accelerator.interrupt_request, bridge.failed)),
            self.wifi_gpio0.eq(1),
        ]
        return m
