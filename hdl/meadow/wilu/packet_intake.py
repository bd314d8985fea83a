"""Intake of matrices: accept their descriptions, consume their packets, report their errors."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.field_counter import FieldCounter
from hdl.meadow.wilu.packet_decoder import PacketDecoder
from hdl.meadow.wilu.unpacker_parameters import RESULT, UnpackerParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

TIMEOUT = 15
"""Timeout in cycles of a deadlock between classes and offsets, which corrupted packets cause."""


class PacketIntake(Unit):
    """Intake of one matrix after another, first unit of the mode-aware unpacker.

    `PacketDecoder` separates fields and offsets. `FieldCounter` ends the matrix at its last ID, or
    earlier if its packets are corrupted. The intake consumes all packets of a matrix, and accepts
    the next matrix after it has reported the errors of the current one.

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
        """Run the intake of a matrix from its description to the report of its errors."""
        m = Module()
        m.submodules.decoder = decoder = PacketDecoder(parameters=self.parameters)
        m.submodules.counter = counter = FieldCounter(parameters=self.parameters)
        connect_streams(m, self.packets, decoder.packets)
        connect_streams(m, decoder.fields, counter.fields)
        connect_streams(m, decoder.offsets, self.offsets)
        connect_streams(m, counter.payloads, self.payloads)
        stuck = self._stuck(m, decoder)
        # The last group was output; an ID was outside the unique matrix.
        output, out_of_range = Signal(), Signal()
        m.d.comb += [
            decoder.matrix.eq(self.matrix),
            decoder.start.eq(self.start),
            decoder.discard.eq(counter.failed),
            counter.start.eq(self.start),
            counter.count.eq(self.matrices.payload.count),
            counter.ended.eq(decoder.ended),
            counter.abandon.eq(stuck & decoder.active),
        ]
        with m.FSM():
            with m.State("ACCEPT_MATRIX"):
                m.d.comb += [self.matrices.ready.eq(1), self.start.eq(self.matrices.valid)]
                m.d.sync += [output.eq(0), out_of_range.eq(0), self.abandon.eq(0)]
                self._register(m)
                with m.If(self.matrices.valid):
                    m.next = "CONSUME_PACKETS"
            # All packets are consumed, including those of a matrix that has failed.
            with m.State("CONSUME_PACKETS"):
                m.d.comb += decoder.active.eq(1)
                with m.If(self.wrong[0]):
                    m.d.sync += out_of_range.eq(1)
                with m.If(stuck):
                    m.d.sync += self.abandon.eq(1)
                with m.If(decoder.ended & counter.closed & output & ~decoder.fields.valid):
                    m.next = "REPORT_ERRORS"
            with m.State("REPORT_ERRORS"):
                errors = self.results.payload
                m.d.comb += [
                    self.results.valid.eq(1),
                    errors.eq(counter.errors),
                    errors.range.eq(out_of_range),
                    # Surplus offsets may be detected in any cycle up to this one.
                    errors.excess.eq(counter.errors.excess | self.wrong[1]),
                ]
                with m.If(self.results.ready):
                    m.next = "ACCEPT_MATRIX"
        with m.If(self.done):
            m.d.sync += output.eq(1)
        return m

    def _register(self, m: Module) -> None:
        """Register the description of a matrix; widths that no ID has become undefined modes."""
        announced = self.matrices.payload
        with m.If(self.matrices.valid):
            m.d.sync += self.matrix.eq(announced)
            for number in range(len(announced.widths)):
                width = announced.widths[number]
                m.d.sync += self.matrix.widths[number].eq(
                    Mux(width > self.parameters.id_bits, 0, width)
                )

    def _stuck(self, m: Module, decoder: PacketDecoder) -> Signal:
        """Detect a deadlock between classes and offsets.

        Either classes wait for offsets while the next packet waits for the classes to advance, or
        offsets wait for classes that are later in the stream.
        """
        waited, stuck, waits = Signal(range(TIMEOUT + 1)), Signal(), Signal()
        m.d.comb += [
            waits.eq(
                Mux(
                    self.offsets.valid,
                    self.idle & ~self.offsets.ready,
                    self.starved & (decoder.ended | decoder.blocked),
                )
            ),
            stuck.eq(waited == TIMEOUT),
        ]
        m.d.sync += waited.eq(Mux(waits & ~stuck, waited + 1, 0))
        return stuck
