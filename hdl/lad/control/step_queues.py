"""The parts of a step, queued for the modules that use them."""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.parameters import LadTileParameters
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class StepQueues(Unit):
    """Begin steps: write the new key and value, then queue the other parts of the step.

    Each queue has room for all steps that can be in flight: `may_begin` implies room in all.

    **Latency** 2 cycles. **Throughput** one step per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Payloads.

    Members
    -------
    steps : In(stream)
        As in `LadTile`.
    may_begin : In(1)
        A slot is free, and the pipeline accepts the step. Not withdrawn while `appends` is valid.
    begin : Out(1)
        A step begins.
    appends : Out(stream)
        As in `LadTile`; before any other stream of the step.
    fetcher_steps : Out(stream)
        `head` and `length`, for the score fetcher.
    group_requests, cache_requests : Out(stream)
        As in `LadTile`.
    eas_steps : Out(stream)
        Query, key and length, for the EAS module.
    md_queries, ac_queries : Out(stream)
        The query, for the MD and the AC module.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        query = p.query_layout
        parts = {
            "fetcher_steps": p.group_request_layout,
            "group_requests": p.group_request_layout,
            "cache_requests": p.head_layout,
            "eas_steps": p.eas.step_layout,
            "md_queries": query,
            "ac_queries": query,
        }
        self.parts = parts
        super().__init__(
            {
                "steps": In(stream.Signature(p.step_layout)),
                "may_begin": In(1),
                "begin": Out(1),
                "appends": Out(stream.Signature(p.append_layout)),
            }
            | {name: Out(stream.Signature(layout)) for name, layout in parts.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """Give each queue the fields of the step that it has."""
        m = Module()
        step, append = self.steps.payload, self.appends.payload
        m.d.comb += [
            self.appends.valid.eq(self.steps.valid & self.may_begin),
            self.steps.ready.eq(self.appends.ready & self.may_begin),
            self.begin.eq(self.appends.valid & self.appends.ready),
            append.head.eq(step.head),
            append.position.eq(step.length - 1),
            append.key.eq(step.key),
            append.value.eq(step.value),
        ]
        for name, layout in self.parts.items():
            m.submodules[name] = fifo = MemoryFifo(shape=layout, depth=MOST_STEPS)
            connect_streams(m, fifo.sink, getattr(self, name))
            m.d.comb += fifo.source.valid.eq(self.begin)
            m.d.comb += [fifo.source.payload[field].eq(step[field]) for field in layout.members]
        return m
