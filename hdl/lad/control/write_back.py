"""What a step has changed: streams to the memory outside, each with the head of its step."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.lane_transfers import LaneSpreader
from hdl.lad.control.mark_merger import MarkMerger
from hdl.lad.control.steps_in_flight import ENDS
from hdl.lad.parameters import LadTileParameters
from hdl.stream.connect import connect_handshake, connect_streams, fork_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

WRITTEN = ENDS[1:]
"""The streams of a step that this unit outputs."""


class WriteBack(Unit):
    """Add heads to the results of a step; report when the last payload of a stream is transferred.

    Modes and counts of a group of positions are output when the changes of its active positions
    have arrived.

    **Latency** 1 to 4 cycles for modes, counts and counters, 0 cycles for the other streams.
    **Throughput** one payload per cycle of each stream.

    Parameters
    ----------
    parameters : LadTileParameters
        Payloads, lanes and positions.

    Members
    -------
    heads : In.array(len(WRITTEN))
        The heads whose steps the streams belong to, in the order of `WRITTEN`.
    ended : Out(len(WRITTEN))
        The last payload of a stream's step is transferred.
    found : In(stream)
        The centre of the new position, from the EAS module.
    counted : In(stream)
        Counts of all positions, from the APID module.
    updates : In(stream)
        States of the active positions, from the MD module.
    computed, updated : In(stream)
        The output and the columns of the caches, from the AC module.
    centres, counters, marks, columns, outputs : Out(stream)
        As in `LadTile`.
    record : Out(record_layout)
        The active positions of a group of `marks`, when it is transferred.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        taken = {
            "found": p.eas.centre_layout,
            "counted": p.apid.counts_layout,
            "updates": p.md.lanes_layout(p.md.update_layout),
            "computed": p.ac.output_layout,
            "updated": p.ac.cache_layout,
        }
        sent = {
            "centres": p.centre_layout,
            "counters": p.counters_layout,
            "marks": p.marks_layout,
            "columns": p.column_layout,
            "outputs": p.output_layout,
        }
        super().__init__(
            {
                "heads": In(p.head_shape).array(len(WRITTEN)),
                "ended": Out(len(WRITTEN)),
                "record": Out(p.record_layout),
            }
            | {name: In(stream.Signature(layout)) for name, layout in taken.items()}
            | {name: Out(stream.Signature(layout)) for name, layout in sent.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the streams; each has its own end."""
        m = Module()
        for source, sink in (
            (self.found, self.centres),
            (self.computed, self.outputs),
            (self.updated, self.columns),
        ):
            connect_handshake(m, source, sink)
            m.d.comb += [
                sink.payload[name].eq(source.payload[name]) for name, _ in source.payload.shape()
            ]
        # Columns have no number; a counter finds the last one.
        columns, column = self.columns, Signal(range(self.parameters.ac.columns))
        m.d.comb += columns.payload.last.eq(column == self.parameters.ac.columns - 1)
        with m.If(columns.valid & columns.ready):
            m.d.sync += column.eq(Mux(columns.payload.last, 0, column + 1))
        ends = {
            "centres": transferred(self.centres),
            "counters": self._merge_marks(m),
            "marks": transferred(self.marks) & self.marks.payload.last,
            "columns": transferred(columns) & columns.payload.last,
            "outputs": transferred(self.outputs),
        }
        m.d.comb += self.ended.eq(Cat(ends[name] for name in WRITTEN))
        for name, head in zip(WRITTEN, self.heads, strict=True):
            m.d.comb += getattr(self, name).payload.head.eq(head)
        return m

    def _merge_marks(self, m: Module) -> Value:
        """Output counters, and marks with the changes; return when the last counters are output."""
        p = self.parameters
        m.submodules.merger = merger = MarkMerger(parameters=p)
        m.submodules.spreader = spreader = LaneSpreader(shape=p.md.update_layout, lanes=p.md.lanes)
        m.submodules.changes = changes = Fifo(shape=merger.changes.payload.shape(), depth=2)
        connect_streams(m, self.counted, merger.groups)
        connect_streams(m, self.updates, spreader.transfers)
        connect_streams(m, changes.sink, merger.changes)
        connect_streams(m, merger.merged, self.marks)
        item, update = spreader.items, spreader.items.payload["item"]
        change, counters, record = changes.source.payload, self.counters.payload, self.record
        m.d.comb += [
            item.ready.eq(fork_handshake(m, item.valid, (self.counters, changes.source))),
            change.mode.eq(update.mode),
            change.count.eq(update.count),
            counters.position.eq(update.position),
            counters.counters.eq(update.counters),
            record.head.eq(self.marks.payload.head),
            record.group.eq(self.marks.payload.group),
            record.active.eq(merger.active),
            record.last.eq(self.marks.payload.last),
            record.enable.eq(transferred(self.marks)),
        ]
        return transferred(item) & item.payload.last


def transferred(port: stream.Interface) -> Value:
    """Return whether a payload is transferred."""
    return port.valid & port.ready
