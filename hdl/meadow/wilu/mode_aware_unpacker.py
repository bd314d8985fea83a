"""Mode-aware unpacking (MAU) module (Section 5.4, Figure 5 (b)): packets to IDs.

The unpacker reads packets and outputs `lanes` IDs per cycle, independently of where packets end. It
supports the three kinds of packets of `packet_format`, with a table of widths per matrix.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.wilu.class_offsets import ClassOffsets
from hdl.meadow.wilu.field_extractor import FieldExtractor
from hdl.meadow.wilu.group_aligner import GroupAligner
from hdl.meadow.wilu.packet_format import PacketKind
from hdl.meadow.wilu.packet_intake import PacketIntake
from hdl.meadow.wilu.unpacker_parameters import RESULT, UnpackerParameters
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit


class ModeAwareUnpacker(Unit):
    """Unpacker of the IDs of packed matrices.

    **Latency** 7 cycles from the first packet to the first group, 12 with `parameters.classes`.

    **Throughput** one packet per cycle at the input or `parameters.lanes` IDs per cycle at the
    output, whichever takes longer, including from packet to packet. The pipeline drains between
    matrices.

    **Errors** are reported in `results` after the last group of the matrix. No error stops the
    unit: it consumes all packets up to `last`. A mode without a width, or with a width greater than
    `parameters.id_bits`, ends the matrix before its packet (`mode`). An ID outside the unique
    matrix is replaced by 0 (`range`). If packets end before the IDs, or offsets are missing, the
    matrix ends (`truncated`). Packets after that of the last ID, and surplus offsets, are discarded
    (`excess`).

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions of packets, IDs and groups.

    Members
    -------
    matrices : In(stream)
        Description of each matrix, before its packets: `kind` of its packets; `count` of its IDs, 1
        or more; `unique`, the number of unique chunks, which IDs must be less than; `wide_classes`,
        1 for classes of 3 bits and 0 for 2; `widths` of fields by mode (`FIXED`: of mode 0), or of
        offsets by class; `bases`, the first ID of each class.
    packets : In(stream)
        A `packet`; `last` with the last one of the matrix, which has at least one.
    groups : Out(stream)
        `ids` in the order of the matrix, the first in lane 0. The first `count` are valid, and the
        others are 0. `last` with the last group of the matrix, the only one that may be partial.
    results : Out(stream)
        Errors of a matrix: `mode`, `range`, `truncated`, `excess`; all 0 without an error.

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
                "groups": Out(stream.Signature(p.group_layout)),
                "results": Out(stream.Signature(RESULT)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect intake, extractor, aligner and class offsets."""
        m = Module()
        p = self.parameters
        m.submodules.intake = intake = PacketIntake(parameters=p)
        m.submodules.extractor = extractor = FieldExtractor(parameters=p)
        m.submodules.aligner = aligner = GroupAligner(parameters=p)
        for name in ("matrices", "packets"):
            connect_streams(m, getattr(self, name), getattr(intake, name))
        connect_streams(m, intake.payloads, extractor.payloads)
        connect_streams(m, extractor.fields, aligner.fields)
        connect_streams(m, intake.results, self.results)
        # A register slice breaks the ready path from groups to packets.
        m.submodules.groups_cut = cut = RegisterSlice(shape=p.group_layout)
        connect_streams(m, aligner.groups, cut.source)
        left_over = Signal()
        if p.classes:
            m.submodules.offsets = offsets = ClassOffsets(parameters=p)
            classes = offsets.widths.shape().length
            m.d.comb += [
                offsets.start.eq(intake.start),
                offsets.active.eq(intake.matrix.kind == PacketKind.CLASSES),
                *(offsets.widths[i].eq(intake.matrix.widths[i]) for i in range(classes)),
                offsets.bases.eq(intake.matrix.bases),
                offsets.abandon.eq(intake.abandon),
                intake.starved.eq(offsets.starved),
                intake.idle.eq(offsets.idle),
                left_over.eq(offsets.left_over),
            ]
            connect_streams(m, intake.offsets, offsets.offsets)
            connect_streams(m, cut.sink, offsets.classes)
            beyond = self._in_range(m, offsets.groups, intake.matrix.unique)
        else:
            beyond = self._in_range(m, cut.sink, intake.matrix.unique)
        m.d.comb += [
            intake.wrong.eq(Cat(beyond, left_over)),
            intake.done.eq(self.groups.valid & self.groups.ready & self.groups.payload.last),
        ]
        return m

    def _in_range(self, m: Module, source: stream.Interface, unique: Value) -> Signal:
        """Register the IDs, with 0 for those out of range; return whether one was out of range."""
        p = self.parameters
        out, group, beyond = self.groups.payload, source.payload, Signal()
        within = [group.ids[lane] < unique for lane in range(p.lanes)]
        there = [group.count > lane for lane in range(p.lanes)]
        m.d.comb += source.ready.eq(~self.groups.valid | self.groups.ready)
        m.d.sync += beyond.eq(0)
        with m.If(source.ready):
            m.d.sync += [
                self.groups.valid.eq(source.valid),
                out.count.eq(group.count),
                out.last.eq(group.last),
                beyond.eq(source.valid & (Cat(there) & ~Cat(within)).any()),
            ]
            for lane in range(p.lanes):
                kept = within[lane] & there[lane]
                m.d.sync += out.ids[lane].eq(Mux(kept, group.ids[lane], 0))
        return beyond
