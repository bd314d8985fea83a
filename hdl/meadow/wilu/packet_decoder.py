"""Separate packets of fields from packets of offsets, and decode the mode field of each packet."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.packet_format import CLASS_BITS, MODE_BITS, MODES, PacketKind
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.unit import Unit


class PacketDecoder(Unit):
    """Decoder of the packets of a matrix.

    The mode field of a packet selects the width of its IDs. With classes, it is the number of
    packets of offsets that follow the packet.

    **Latency** 1 cycle for fields, 0 for offsets. **Throughput** one packet per cycle.

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of packets and IDs.

    Members
    -------
    matrix : In
        Description of the current matrix; a width of 0 is an undefined mode.
    start : In(1)
        A matrix begins; its packets are accepted from the next cycle on.
    active : In(1)
        Accept packets up to `last`.
    discard : In(1)
        Discard accepted packets.
    packets : In(stream)
        Packets of the matrix.
    fields : Out(stream)
        Packets of fields without their mode field.
    offsets : Out(stream)
        Packets of offsets.
    ended : Out(1)
        The last packet was accepted.
    blocked : Out(1)
        A packet of fields waits for an earlier one.

    Raises
    ------
    ValueError
        If a rule of `UnpackerParameters` is broken.
    """

    def __init__(self, *, parameters: UnpackerParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "matrix": In(p.matrix_layout),
                "start": In(1),
                "active": In(1),
                "discard": In(1),
                "packets": In(stream.Signature(p.packet_layout)),
                "fields": Out(stream.Signature(p.coded_layout)),
                "offsets": Out(stream.Signature(p.packet_bits)),
                "ended": Out(1),
                "blocked": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Forward offsets; register fields with their width."""
        m = Module()
        p, matrix, fields = self.parameters, self.matrix, self.fields
        packet = Value.cast(self.packets.payload.packet)
        mode = packet[:MODE_BITS]
        # Packets of offsets that still follow the last packet of classes.
        following, accepts, taken = Signal(MODE_BITS), Signal(), Signal()
        of_offsets, free = following != 0, ~fields.valid | fields.ready
        fixed = matrix.kind == PacketKind.FIXED
        classes = (matrix.kind == PacketKind.CLASSES) & int(p.classes)
        m.d.comb += [
            accepts.eq(self.active & ~self.ended),
            self.offsets.payload.eq(packet),
            self.offsets.valid.eq(self.packets.valid & accepts & ~self.discard & of_offsets),
            self.packets.ready.eq(
                accepts & (self.discard | Mux(of_offsets, self.offsets.ready, free))
            ),
            taken.eq(self.packets.valid & self.packets.ready),
            self.blocked.eq(self.packets.valid & ~self.packets.ready & ~of_offsets),
        ]
        widths = Array(matrix.widths[number] for number in range(MODES))
        class_width = Mux(matrix.wide_classes, CLASS_BITS[1], CLASS_BITS[0])
        with m.If(free):
            m.d.sync += [
                fields.valid.eq(taken & ~of_offsets & ~self.discard),
                fields.payload.width.eq(Mux(classes, class_width, widths[Mux(fixed, 0, mode)])),
                fields.payload.payload.eq(Mux(fixed, packet, packet[MODE_BITS:])),
                fields.payload.whole.eq(fixed),
            ]
        with m.If(taken):
            m.d.sync += self.ended.eq(self.packets.payload.last)
            m.d.sync += following.eq(Mux(of_offsets, following - 1, Mux(classes, mode, 0)))
        # Packets of the previous matrix may have ended before all its offsets.
        with m.If(self.start):
            m.d.sync += [following.eq(0), self.ended.eq(0)]
        return m
