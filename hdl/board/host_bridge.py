"""Bridge from a serial host to the registers and the memory of an accelerator."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.board.protocol import (
    ANSWER,
    CHECK_BYTES,
    HEADER_BYTES,
    INITIAL,
    MOST_BYTES,
    REGISTER_BYTES,
    START,
    Command,
    Status,
    next_check,
)
from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two, require_range
from hdl.shell.axi import (
    INCREMENTING,
    AxiLiteSignature,
    AxiReadSignature,
    AxiWriteSignature,
    Response,
)
from hdl.unit import Unit

REGISTER_ADDRESS_BITS = 12
"""Bits of a byte address in the register block."""


class HostBridge(Unit):
    """Execute the requests of `hdl.board.protocol`, one at a time.

    The payload of a request is stored until its check is correct and all its addresses are legal:
    an illegal request accesses nothing. Bytes that are no frame, a frame with a byte without a stop
    bit, and one with a wrong check are discarded up to the next pause of `silence` cycles. One
    answer with the error follows. Bytes that arrive during an access or an answer are ignored.

    **Latency** 3 cycles from the last byte of a request to the first access. **Throughput** one
    byte of memory per 5 cycles, or that of the serial line.

    Parameters
    ----------
    memory_bytes : int
        Bytes of the memory, from address 0 on.
    address_bits, data_bytes : int
        Dimensions of the AXI4 ports, as in `hdl.shell.axi`.
    silence : int
        Cycles without a byte after which a frame is incomplete.

    Members
    -------
    byte, valid, corrupted : In(8), In(1), In(1)
        Received bytes, as from `SerialReceiver`.
    answers : Out(stream)
        Bytes of answers.
    failed : Out(1)
        The status of the last answer is an error.
    m_axi_lite : Out(AxiLiteSignature)
        The registers.
    m_axi_reads, m_axi_writes : Out(AxiReadSignature), Out(AxiWriteSignature)
        The memory; bursts of one beat, which write one byte.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(
        self, *, memory_bytes: int, address_bits: int, data_bytes: int, silence: int
    ) -> None:
        require_range("address_bits", address_bits, 12, 64)
        require_power_of_two("memory_bytes", memory_bytes, 4096, 1 << min(address_bits, 31))
        require_range("silence", silence, 1, (1 << 24) - 1)
        self.memory_bytes, self.data_bytes, self.silence = memory_bytes, data_bytes, silence
        port = {"address_bits": address_bits, "data_bytes": data_bytes}
        super().__init__(
            {
                "byte": In(8),
                "valid": In(1),
                "corrupted": In(1),
                "answers": Out(stream.Signature(8)),
                "failed": Out(1),
                "m_axi_lite": Out(AxiLiteSignature(address_bits=REGISTER_ADDRESS_BITS)),
                "m_axi_reads": Out(AxiReadSignature(**port)),
                "m_axi_writes": Out(AxiWriteSignature(**port)),
            }
        )
        # The request, and the word of a register.
        self._header, self._word = Signal(8 * HEADER_BYTES), Signal(32)
        self._command = self._header[:8]
        self._address, self._count = Signal(32), Signal(range(MOST_BYTES + 1))
        # Bytes of the present part of a frame so far; check of the frame; status of the answer.
        self._done, self._check = Signal(range(MOST_BYTES + 1)), Signal(16)
        self._status = Signal(Status)
        # Whether address and data of a write are accepted.
        self._sent, self._quiet = Signal(2), Signal()

    def elaborate(self, platform: object) -> Module:
        """Receive a request, execute it, and answer."""
        m = Module()
        m.submodules.payload = payload = Memory(depth=MOST_BYTES, width=8)
        waited = Signal(range(self.silence + 1))
        m.d.comb += [
            self._quiet.eq(waited == self.silence),
            self._address.eq(self._header[8:40]),
            self._count.eq(self._header[40:48] + 1),
            self.failed.eq(Value.cast(self._status) != Status.OKAY.value),
        ]
        m.d.sync += waited.eq(Mux(self.valid, 0, waited + ~self._quiet))
        m.d.comb += [
            payload.write_address.eq(self._done[:8]),
            payload.write_data.eq(self.byte),
            payload.read_address.eq(self._done[:8]),
        ]
        self._drive_ports(m, payload)
        with m.FSM(name="request"):
            self._receive(m, payload)
            self._decide(m)
            self._access_register(m)
            self._write_memory(m, payload)
            self._answer(m)
        return m

    def _fail(self, m: Module, status: Status, state: str) -> None:
        """Set the status of the answer, and the next state."""
        m.d.sync += self._status.eq(status)
        m.next = state

    def _receive(self, m: Module, payload: Memory) -> None:
        """Receive a request; discard bytes that are no request."""
        with m.State("IDLE"):
            m.d.sync += [self._check.eq(INITIAL), self._done.eq(0)]
            with m.If(self.valid):
                with m.If((self.byte == START) & ~self.corrupted):
                    m.next = "HEADER"
                with m.Else():
                    self._fail(m, Status.FRAME, "DISCARD")
        parts = {
            "HEADER": (HEADER_BYTES, "DISPATCH"),
            "PAYLOAD": (self._count, "CHECK"),
            "CHECK": (CHECK_BYTES, "DECIDE"),
        }
        for part, (count, following) in parts.items():
            with m.State(part):
                with m.If(self.valid):
                    m.d.sync += [
                        self._done.eq(self._done + 1),
                        self._check.eq(next_check(self._check, self.byte)),
                    ]
                    if part == "HEADER":
                        m.d.sync += self._header.eq(Cat(self._header[8:], self.byte))
                    if part == "PAYLOAD":
                        m.d.comb += payload.write_enable.eq(1)
                        m.d.sync += self._word.eq(Cat(self._word[8:], self.byte))
                    with m.If(self._done == count - 1):
                        m.d.sync += self._done.eq(0)
                        m.next = following
                    with m.If(self.corrupted):
                        self._fail(m, Status.FRAME, "DISCARD")
                with m.Elif(self._quiet):
                    self._fail(m, Status.FRAME, "DISCARD")
        with m.State("DISPATCH"):
            m.next = "CHECK"
            with m.If(self._command[0]):
                m.next = "PAYLOAD"
        with m.State("DISCARD"):
            with m.If(self._quiet):
                m.next = "ANSWER"

    def _decide(self, m: Module) -> None:
        """Check a complete request, and begin its execution."""
        command, address = self._command, self._address
        register = Command.READ_REGISTER.value, Command.WRITE_REGISTER.value
        memory = Command.READ_MEMORY.value, Command.WRITE_MEMORY.value
        with m.State("DECIDE"):
            # The check of a frame with its own check is 0.
            with m.If(self._check != 0):
                self._fail(m, Status.CHECK, "DISCARD")
            with m.Elif(command.matches(*register)):
                with m.If(self._count != REGISTER_BYTES):
                    self._fail(m, Status.LENGTH, "ANSWER")
                with m.Elif(address[:2].any()):
                    self._fail(m, Status.ALIGNMENT, "ANSWER")
                with m.Elif(address[REGISTER_ADDRESS_BITS:].any()):
                    self._fail(m, Status.ADDRESS, "ANSWER")
                with m.Else():
                    m.next = "READ REGISTER"
                    with m.If(command[0]):
                        m.next = "WRITE REGISTER"
            with m.Elif(command.matches(*memory)):
                with m.If(address + self._count > self.memory_bytes):
                    self._fail(m, Status.ADDRESS, "ANSWER")
                with m.Else():
                    self._fail(m, Status.OKAY, "ANSWER")
                    with m.If(command[0]):
                        m.next = "FETCH"
            with m.Else():
                self._fail(m, Status.COMMAND, "ANSWER")

    def _drive_ports(self, m: Module, payload: Memory) -> None:
        """Drive the payloads of all AXI channels, which are constant during an access."""
        lite, reads, writes = self.m_axi_lite, self.m_axi_reads, self.m_axi_writes
        lane_bits = exact_log2(self.data_bytes)
        place = self._address + self._done
        beat = Cat(Const(0, lane_bits), place[lane_bits:32])
        m.d.comb += [
            lite.awaddr.eq(self._address),
            lite.araddr.eq(self._address),
            lite.wdata.eq(self._word),
            lite.wstrb.eq(0b1111),
            writes.wdata.eq(payload.read_data.replicate(self.data_bytes)),
            writes.wstrb.eq(1 << place[:lane_bits]),
            writes.wlast.eq(1),
        ]
        for port, prefix in ((reads, "ar"), (writes, "aw")):
            m.d.comb += [
                getattr(port, f"{prefix}addr").eq(beat),
                getattr(port, f"{prefix}size").eq(lane_bits),
                getattr(port, f"{prefix}burst").eq(INCREMENTING),
            ]

    def _access_register(self, m: Module) -> None:
        """Read or write a register."""
        lite = self.m_axi_lite
        with m.State("READ REGISTER"):
            m.d.comb += lite.arvalid.eq(1)
            with m.If(lite.arready):
                m.next = "REGISTER DATA"
        with m.State("REGISTER DATA"):
            m.d.comb += lite.rready.eq(1)
            m.d.sync += self._word.eq(lite.rdata)
            with m.If(lite.rvalid):
                self._finish(m, lite.rresp)
        with m.State("WRITE REGISTER"):
            self._offer_write(m, lite, "REGISTER RESPONSE")
        with m.State("REGISTER RESPONSE"):
            m.d.comb += lite.bready.eq(1)
            with m.If(lite.bvalid):
                self._finish(m, lite.bresp)

    def _offer_write(self, m: Module, port: Any, following: str) -> None:
        """Offer address and data of a write, which are accepted independently."""
        sent = Cat(port.awready, port.wready) | self._sent
        m.d.comb += [port.awvalid.eq(~self._sent[0]), port.wvalid.eq(~self._sent[1])]
        m.d.sync += self._sent.eq(sent)
        with m.If(sent.all()):
            m.d.sync += self._sent.eq(0)
            m.next = following

    def _finish(self, m: Module, response: Value) -> None:
        """Answer with the status of a register's response."""
        okay = Value.cast(response) == Response.OKAY.value
        status = Mux(okay, Status.OKAY.value, Status.REFUSED.value)
        m.d.sync += Value.cast(self._status).eq(status)
        m.next = "ANSWER"

    def _write_memory(self, m: Module, payload: Memory) -> None:
        """Write the payload to the memory, byte by byte."""
        with m.State("FETCH"):
            m.d.comb += payload.read_enable.eq(1)
            m.next = "WRITE MEMORY"
        with m.State("WRITE MEMORY"):
            self._offer_write(m, self.m_axi_writes, "MEMORY RESPONSE")
        with m.State("MEMORY RESPONSE"):
            # All bytes are inside the memory, which accepts each of them.
            m.d.comb += self.m_axi_writes.bready.eq(1)
            with m.If(self.m_axi_writes.bvalid):
                m.d.sync += self._done.eq(self._done + 1)
                m.next = "FETCH"
                with m.If(self._done == self._count - 1):
                    m.next = "ANSWER"

    def _answer(self, m: Module) -> None:
        """Send the answer; of a read, each byte of memory before it is sent."""
        reads, answers = self.m_axi_reads, self.answers
        register = self._command == Command.READ_REGISTER.value
        okay = Value.cast(self._status) == Status.OKAY.value
        with m.State("ANSWER"):
            m.d.comb += [answers.valid.eq(1), answers.payload.eq(ANSWER)]
            m.d.sync += [self._check.eq(INITIAL), self._done.eq(0)]
            with m.If(answers.ready):
                m.next = "STATUS"
        with m.State("STATUS"):
            with m.If(self._send(m, self._status)):
                m.next = "ANSWER CHECK"
                with m.If(okay & ~self._command[0]):
                    m.next = "READ MEMORY"
                    with m.If(register):
                        m.next = "DATA"
        with m.State("READ MEMORY"):
            m.d.comb += reads.arvalid.eq(1)
            with m.If(reads.arready):
                m.next = "MEMORY DATA"
        with m.State("MEMORY DATA"):
            m.d.comb += reads.rready.eq(1)
            lane = (self._address + self._done)[: exact_log2(self.data_bytes)]
            m.d.sync += self._word[:8].eq(reads.rdata.word_select(lane, 8))
            with m.If(reads.rvalid):
                m.next = "DATA"
        with m.State("DATA"):
            with m.If(self._send(m, self._word[:8])):
                m.d.sync += [self._word.eq(self._word >> 8), self._done.eq(self._done + 1)]
                with m.If(~register):
                    m.next = "READ MEMORY"
                with m.If(self._done == self._count - 1):
                    m.d.sync += self._done.eq(0)
                    m.next = "ANSWER CHECK"
        with m.State("ANSWER CHECK"):
            m.d.comb += [answers.valid.eq(1), answers.payload.eq(self._check[8:])]
            with m.If(answers.ready):
                m.d.sync += [self._check.eq(self._check << 8), self._done.eq(self._done + 1)]
                with m.If(self._done == CHECK_BYTES - 1):
                    m.next = "IDLE"

    def _send(self, m: Module, byte: Any) -> Value:
        """Offer a byte that the check covers; return whether it is accepted."""
        value = Value.cast(byte)
        m.d.comb += [self.answers.valid.eq(1), self.answers.payload.eq(value)]
        with m.If(self.answers.ready):
            m.d.sync += self._check.eq(next_check(self._check, value))
        return self.answers.ready
