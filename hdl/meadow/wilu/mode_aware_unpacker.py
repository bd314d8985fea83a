"""The mode-aware unpacking (MAU) module (Section 5.4, Figure 5 (b)): from packets to IDs.

Packets come in; IDs leave, `lanes` together in every cycle, wherever packets end. The unpacker
reads the three kinds of packets that `packet_format` describes, by a table of widths a matrix.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
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
    """Return the IDs of packed matrices.

    **Latency** 7 cycles from the first packet to the first group, 12 with `parameters.classes`.

    **Throughput** a packet a cycle comes in, `parameters.lanes` IDs a cycle leave, also from packet
    to packet: whichever takes longer. From matrix to matrix the pipeline empties.

    **Errors** are told by `results` behind the matrix's last group, and none stops the unit: all
    packets up to `last` are taken. A mode without a width, or with one above `parameters.id_bits`,
    ends the matrix before its packet (`mode`). An ID beyond the unique matrix becomes 0 (`range`).
    Packets that end before the IDs, or classes without offsets, end the matrix (`truncated`).
    Packets behind the last ID's are dropped, and so are offsets (`excess`).

    Parameters
    ----------
    parameters : UnpackerParameters
        Dimensions.

    Members
    -------
    matrices : In(stream)
        Of each matrix, before its packets: `kind` of its packets; `count` of its IDs, 1 or more;
        `unique`, how many IDs there are; `wide_classes`, whether a class has 3 bits or 2; `widths`
        of fields by mode (`FIXED`: of mode 0), or of offsets by class; `bases`, first IDs by class.
    packets : In(stream)
        A `packet`, and `last` with the matrix's last; at least one a matrix.
    groups : Out(stream)
        `ids` in the matrix's order, the first in lane 0; `count` of them are there, and the others
        are 0; `last` with the matrix's last. All groups but that are full.
    results : Out(stream)
        What was wrong: `mode`, `range`, `truncated`, `excess`; none if all was well.

    Raises
    ------
    ValueError
        By `UnpackerParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Link intake, extractor, aligner and the offsets of classes."""
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
        # Whether groups move on is not to decide in the same cycle whether packets do.
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

    def _in_range(self, m: Module, source: Any, unique: Any) -> Signal:
        """Give IDs out of registers, 0 where there is none; return whether one was beyond."""
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
