"""The bridge with a memory and a register block in Amaranth's simulator, as a serial line."""

from collections import deque
from typing import Any

from amaranth.hdl import Elaboratable, Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from hdl.board.block_memory import BlockMemory
from hdl.board.host_bridge import HostBridge
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.register_map import AxiRegistersParameters

MEMORY_BYTES, SILENCE = 4096, 60
REGISTERS = AxiRegistersParameters(
    bases=2, axi_address_bits=14, alignment=4, sources=1, token_depth=2, digest=0x1234_5678
)
PATIENCE = 4000
"""Cycles without a byte after which an answer is late."""


class Bridged(Elaboratable):
    """The bridge, a memory with a further idle master, and registers."""

    def __init__(self) -> None:
        port = {"address_bits": 14, "data_bytes": 8}
        self.bridge = HostBridge(memory_bytes=MEMORY_BYTES, silence=SILENCE, **port)
        self.memory = BlockMemory(memory_bytes=MEMORY_BYTES, readers=2, writers=2, **port)
        self.registers = AxiRegisters(parameters=REGISTERS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules += [self.bridge, self.memory, self.registers]
        connect(m, self.bridge.m_axi_reads, self.memory.reads[1])
        connect(m, self.bridge.m_axi_writes, self.memory.writes[1])
        connect(m, self.bridge.m_axi_lite, self.registers.s_axi)
        return m


class BridgeLine:
    """A line whose reads advance the simulation; the time between bytes is `gap` cycles.

    A byte of `corrupted` has no stop bit.
    """

    def __init__(self) -> None:
        self.design: Any = Bridged()
        self.gap, self.cycle = 3, 0
        self.sent: deque[tuple[int, bool]] = deque()
        self.received = bytearray()
        self._due = 0
        self._simulator = Simulator(self.design)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._run, background=True)

    async def _run(self, ctx: Any) -> None:
        """Send a byte if it is due, and accept bytes of answers in two of three cycles."""
        bridge = self.design.bridge
        while True:
            sends = bool(self.sent) and self.cycle >= self._due
            ctx.set(bridge.valid, sends)
            if sends:
                byte, corrupted = self.sent.popleft()
                ctx.set(bridge.byte, byte)
                ctx.set(bridge.corrupted, corrupted)
                self._due = self.cycle + self.gap
            ctx.set(bridge.answers.ready, self.cycle % 3 != 0)
            if ctx.get(bridge.answers.valid) and self.cycle % 3:
                self.received.append(ctx.get(bridge.answers.payload))
            await ctx.tick()
            self.cycle += 1

    def write(self, content: bytes) -> None:
        self.sent.extend((byte, False) for byte in content)

    def write_corrupted(self, byte: int) -> None:
        self.sent.append((byte, True))

    def pass_cycles(self, cycles: int) -> None:
        end = self.cycle + cycles
        while self.cycle < end:
            self._simulator.advance()

    def read(self, count: int) -> bytes:
        limit = self.cycle + PATIENCE
        while len(self.received) < count and (self.sent or self.cycle < limit):
            before = len(self.received), len(self.sent)
            self._simulator.advance()
            if (len(self.received), len(self.sent)) != before:
                limit = self.cycle + PATIENCE
        found, self.received = bytes(self.received[:count]), self.received[count:]
        return found
