"""Decode packets by their mode field and matrix, and check that packets and matrix agree."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.packet_format import CLASS_BITS, MODE_BITS, PacketKind, ids_in
from hdl.meadow.wilu.unpacker_parameters import (
    COUNT_BITS,
    RESULT,
    WIDTH_BITS,
    UnpackerParameters,
)
from hdl.unit import Unit

TIMEOUT = 15
"""Timeout in cycles of a deadlock between classes and offsets, which corrupted packets cause."""


@dataclass(frozen=True)
class MatrixProgress:
    """Progress and errors of the current matrix.

    Members
    -------
    running : Signal
        A matrix is in progress.
    ended : Signal
        Its last packet was consumed.
    closed : Signal
        Its last field was output.
    gone : Signal
        Its last group was output.
    failed : Signal
        An error makes all later fields invalid.
    found : data.View
        The errors so far, as `RESULT`.
    """

    running: Signal
    ended: Signal
    closed: Signal
    gone: Signal
    failed: Signal
    found: Any


@dataclass(frozen=True)
class HeldPacket:
    """The register of a packet that has fields.

    Members
    -------
    waits : Signal
        A packet is held.
    stuck : Signal
        A deadlock was detected.
    width : Signal
        Bits of a field; 0 for an undefined mode.
    payload : Signal
        The fields.
    whole : Signal
        The packet has no mode field.
    """

    waits: Signal
    stuck: Signal
    width: Signal
    payload: Signal
    whole: Signal


class PacketIntake(Unit):
    """Separation of fields and offsets, with a count of the matrix's IDs.

    The last payload of a matrix is the one that completes its IDs. If the packets end earlier, or a
    mode has no width, an empty payload is the last. Later packets are consumed and discarded.

    **Latency** 2 cycles. **Throughput** one packet per cycle.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of packets and IDs.

    Members
    -------
    matrices : In(stream)
        Description of a matrix; accepted when the previous matrix is complete.
    packets : In(stream)
        Packets of the matrix.
    payloads : Out(stream)
        Payloads of fields.
    offsets : Out(stream)
        Packets of offsets.
    matrix : Out
        Description of the current matrix; widths greater than `parameters.id_bits` are 0.
    start : Out(1)
        A matrix begins.
    starved, idle : In(1)
        Classes wait for offsets; no classes are held that need offsets.
    abandon : Out(1)
        The offsets that classes wait for are missing.
    done : In(1)
        The last group of the matrix is output.
    wrong : In(2)
        Bit 0: an ID is outside the unique matrix. Bit 1: offsets are left over.
    results : Out(stream)
        Errors of a matrix, one item after its last group.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "matrices": In(stream.Signature(p.matrix_layout)),
                "packets": In(stream.Signature(p.packet_layout)),
                "payloads": Out(stream.Signature(p.payload_layout)),
                "offsets": Out(stream.Signature(p.packet_bits)),
                "matrix": Out(p.matrix_layout),
                "start": Out(1),
                "starved": In(1),
                "idle": In(1),
                "abandon": Out(1),
                "done": In(1),
                "wrong": In(2),
                "results": Out(stream.Signature(RESULT)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Accept a matrix, consume its packets, report its errors."""
        m = Module()
        running, ended, closed = Signal(), Signal(), Signal()
        failed, gone, found = Signal(), Signal(), Signal(RESULT)
        matrix = MatrixProgress(running, ended, closed, gone, failed, found)
        packet_waits, stuck = Signal(), Signal()
        width, whole = Signal(WIDTH_BITS, reset_less=True), Signal(reset_less=True)
        payload = Signal(self.parameters.packet_bits, reset_less=True)
        held = HeldPacket(packet_waits, stuck, width, payload, whole)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.matrices.ready.eq(1), self.start.eq(self.matrices.valid)]
                self._load(m)
                m.d.sync += [ended.eq(0), closed.eq(0), failed.eq(0), gone.eq(0), found.eq(0)]
                m.d.sync += self.abandon.eq(0)
                with m.If(self.matrices.valid):
                    m.next = "RUN"
            # All packets are consumed, including those of a matrix that has failed.
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If(ended & closed & gone & ~held.waits):
                    m.next = "REPORT"
            # Each matrix is reported before the next one begins.
            with m.State("REPORT"):
                m.d.comb += self.results.valid.eq(1)
                m.d.comb += self.results.payload.eq(found)
                # Surplus offsets may be detected in any cycle up to this one.
                m.d.comb += self.results.payload.excess.eq(found.excess | self.wrong[1])
                with m.If(self.results.ready):
                    m.next = "IDLE"
        with m.If(self.done):
            m.d.sync += gone.eq(1)
        with m.If(self.wrong[0] & running):
            m.d.sync += found.range.eq(1)
        self._take(m, matrix, held)
        self._count(m, matrix, held)
        with m.If(held.stuck & running):
            m.d.sync += [failed.eq(1), self.abandon.eq(1), found.truncated.eq(1)]
        return m

    def _load(self, m: Module) -> None:
        """Register the description of a matrix."""
        announced = self.matrices.payload
        with m.If(self.matrices.valid):
            m.d.sync += self.matrix.eq(announced)
            for number in range(len(announced.widths)):
                width = announced.widths[number]
                m.d.sync += self.matrix.widths[number].eq(
                    Mux(width > self.parameters.id_bits, 0, width)
                )

    def _take(self, m: Module, matrix: MatrixProgress, held: HeldPacket) -> None:
        """Forward packets of offsets, and register other packets with the width of their fields."""
        p = self.parameters
        packet = Value.cast(self.packets.payload.packet)
        mode = packet[:MODE_BITS]
        following, takes, move = Signal(MODE_BITS), Signal(), Signal()
        running, ended, failed = matrix.running, matrix.ended, matrix.failed
        fixed = self.matrix.kind == PacketKind.FIXED
        classes = (self.matrix.kind == PacketKind.CLASSES) & int(p.classes)
        of_offsets = following != 0
        m.d.comb += [
            move.eq(~held.waits | self.payloads.ready | ~self.payloads.valid),
            self.offsets.payload.eq(packet),
            self.offsets.valid.eq(self.packets.valid & running & ~ended & ~failed & of_offsets),
            self.packets.ready.eq(
                running & ~ended & (failed | Mux(of_offsets, self.offsets.ready, move))
            ),
            takes.eq(self.packets.valid & self.packets.ready),
        ]
        # A mode selects the width of fields, or is the number of packets of offsets that follow.
        table = Array(self.matrix.widths[number] for number in range(1 << MODE_BITS))
        class_width = Mux(self.matrix.wide_classes, CLASS_BITS[1], CLASS_BITS[0])
        with m.If(move):
            m.d.sync += [
                held.waits.eq(takes & ~of_offsets & ~failed),
                held.width.eq(Mux(classes, class_width, table[Mux(fixed, 0, mode)])),
                held.payload.eq(Mux(fixed, packet, packet[MODE_BITS:])),
                held.whole.eq(fixed),
            ]
        with m.If(takes):
            m.d.sync += ended.eq(self.packets.payload.last)
            m.d.sync += following.eq(Mux(of_offsets, following - 1, Mux(classes, mode, 0)))
        with m.If(self.start):
            m.d.sync += [following.eq(0), held.waits.eq(0)]

        # Corrupted packets cause two kinds of deadlock: classes wait for offsets while the next
        # packet waits for the classes to advance, or offsets wait for classes that are later in
        # the stream.
        waited = Signal(range(TIMEOUT + 1))
        blocked = self.packets.valid & ~self.packets.ready & ~of_offsets
        in_vain = Mux(
            self.offsets.valid,
            self.idle & ~self.offsets.ready,
            self.starved & (ended | blocked),
        )
        m.d.sync += waited.eq(Mux(in_vain & ~held.stuck, waited + 1, 0))
        m.d.comb += held.stuck.eq(waited == TIMEOUT)

    def _count(self, m: Module, matrix: MatrixProgress, held: HeldPacket) -> None:
        """Output a payload with the number of its fields; end the matrix, complete or not."""
        p = self.parameters
        waits, closed, failed, found = held.waits, matrix.closed, matrix.failed, matrix.found
        number, remaining = Signal(range(p.packet_bits + 1)), Signal(COUNT_BITS)
        with m.Switch(held.width):
            for bits in range(1, p.id_bits + 1):
                with m.Case(bits):
                    counts = (ids_in(size, bits) for size in (p.packet_bits, p.packet_bits - 4))
                    m.d.comb += number.eq(Mux(held.whole, *counts))
        out, finishes = self.payloads.payload, Signal()
        m.d.comb += finishes.eq(remaining <= number)
        # Fields are counted here, so that a corrupted packet cannot make a matrix longer.
        free = ~self.payloads.valid | self.payloads.ready
        with m.If(free):
            m.d.sync += self.payloads.valid.eq(0)
            m.d.sync += [
                out.payload.eq(held.payload),
                out.select.eq(Cat(held.width == bits for bits in range(1, p.id_bits + 1))),
                out.number.eq(Mux(finishes, remaining, number)),
                out.last.eq(finishes),
            ]
            with m.If(waits & ~closed & ~failed & (number != 0)):
                m.d.sync += [
                    self.payloads.valid.eq(1),
                    remaining.eq(remaining - number),
                    closed.eq(finishes),
                ]
                # A matrix without IDs has no packet.
                with m.If(remaining == 0):
                    m.d.sync += found.excess.eq(1)
            with m.Elif(waits & ~closed & ~failed):
                m.d.sync += [failed.eq(1), found.mode.eq(1)]
            with m.Elif(waits & closed & ~failed):
                m.d.sync += found.excess.eq(1)
            with m.Elif(~closed & (failed | matrix.ended)):
                m.d.sync += [
                    self.payloads.valid.eq(1),
                    out.number.eq(0),
                    out.last.eq(1),
                    closed.eq(1),
                    found.truncated.eq(found.truncated | ~failed),
                ]
        with m.If(self.start):
            m.d.sync += [remaining.eq(self.matrices.payload.count), self.payloads.valid.eq(0)]
