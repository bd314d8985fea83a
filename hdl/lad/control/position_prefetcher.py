"""Prefetch of the previous step's active positions (Section IV-D)."""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.active_record import ActiveRecord
from hdl.lad.control.active_union import COUNTER_BITS, ActiveUnion
from hdl.lad.control.head_gate import HeadGate
from hdl.lad.control.row_requests import RowRequests
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class PositionPrefetcher(Unit):
    """Prefetch the rows of positions that were active in a head's previous step.

    The heads of the next steps are announced in the order of the steps. `HeadGate` holds a group of
    heads back until its previous steps are complete. `ActiveRecord` then lists all positions that
    were active in any of these steps. `RowRequests` requests their rows, while there is room.
    `ActiveUnion` selects the rows that a step needs, and requests missing rows. Answers are output
    in the order of the step's positions.

    **Latency** 2 additional cycles for rows from outside. **Throughput** one row or request per
    cycle; a prefetched row that no head needs takes one cycle, too.

    Parameters
    ----------
    parameters : LadTileParameters
        Sizes of groups, queues and rows.

    Members
    -------
    heads : In(stream)
        Heads of the next steps, one per step. The first head of a group is accepted when the
        previous steps of all its heads are complete.
    begins : In(1)
        A step begins.
    may_begin : Out(1)
        The head of the next step has been accepted.
    freed, freed_head : In
        A step is complete, and its head.
    record : In(struct)
        With `enable`: the lanes of the `group` of a `head` that were `active` in its step; `last`
        group.
    asked : In(stream)
        The active positions of a step (the paper's J) in ascending order; `last` with the highest
        one.
    answered : Out(stream)
        Their rows, in order.
    requests : Out(stream)
        Positions to fetch from outside.
    fetched : In(stream)
        Their rows, in order.
    hits, misses : Out(32)
        Number of positions of `asked` since reset that were on chip, and that were not.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "heads": In(stream.Signature(p.head_layout)),
                "begins": In(1),
                "may_begin": Out(1),
                "freed": In(1),
                "freed_head": In(p.head_shape),
                "record": In(p.record_layout),
                "asked": In(stream.Signature(p.asked_layout)),
                "answered": Out(stream.Signature(p.active_layout)),
                "requests": Out(stream.Signature(p.row_request_layout)),
                "fetched": In(stream.Signature(p.active_layout)),
                "hits": Out(COUNTER_BITS),
                "misses": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect gate, record, requests and union."""
        m = Module()
        p = self.parameters
        m.submodules.gate = gate = HeadGate(parameters=p)
        m.submodules.active_record = record = ActiveRecord(parameters=p)
        m.submodules.row_requests = requests = RowRequests(parameters=p)
        m.submodules.union = union = ActiveUnion(parameters=p)
        # The queue of rows holds as many rows as positions are listed: a listed row is never
        # blocked.
        m.submodules.listed = listed = MemoryFifo(shape=p.listed_layout, depth=p.prefetched)
        m.submodules.rows = rows = MemoryFifo(shape=p.active_layout, depth=p.prefetched)
        m.submodules.missed = missed = Fifo(shape=p.row_request_layout, depth=2)
        for source, sink in (
            (self.heads, gate.heads),
            (gate.head_groups, record.head_groups),
            (record.positions, requests.positions),
            (requests.listed, listed.source),
            (listed.sink, union.listed),
            (requests.ahead, rows.source),
            (rows.sink, union.ahead),
            (union.missed, missed.source),
            (missed.sink, requests.missed),
            (requests.late, union.late),
            (requests.requests, self.requests),
            (self.fetched, requests.fetched),
            (self.asked, union.asked),
            (union.answered, self.answered),
        ):
            connect_streams(m, source, sink)
        m.d.comb += [
            gate.begins.eq(self.begins),
            gate.freed.eq(self.freed),
            gate.freed_head.eq(self.freed_head),
            self.may_begin.eq(gate.may_begin),
            record.record.eq(self.record),
            self.hits.eq(union.hits),
            self.misses.eq(union.misses),
        ]
        return m
