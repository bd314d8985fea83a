"""LAD's mode discrepancy (MD) module: Section IV-B (4)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.fp16 import FP16
from hdl.lad.md.discrepancy_lane import DiscrepancyLane
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class ModeDiscrepancyModule(Unit):
    """Process `lanes` active positions per cycle: score, interval, counters, mode, coefficients.

    The vector units cannot stall: each score has a reserved entry in a FIFO. The state of a
    position is held in a memory until its score is valid.

    **Latency** ``scalar_latency + 2 * add_stages + multiply_stages + 5`` cycles from a key to its
    coefficients. **Throughput** `lanes` positions per cycle, and one cycle per step for its query.

    **Numerics** FP16, each operation rounded once: ``s = <query, key>`` in the vector unit's order,
    ``x = s - maximum``, ``alpha = a[interval] - a[mode]``, ``beta = b[interval] - b[mode]``,
    ``alpha_score = alpha * s``. The mode is that before the step. Counters saturate at 4095. LAD,
    Section IV-B (4).

    Parameters
    ----------
    parameters : ModeDiscrepancyModuleParameters
        Vector size, lanes, intervals and register stages.
    shared : bool
        Use vector units outside the module, through `units`.

    Members
    -------
    steps : In(stream)
        The `query` divided by the square root of the head size, and the `maximum` (the paper's
        max_s) of the scores.
    active : In(stream)
        `keys` and `marks` of up to `lanes` active positions (J), those marked in `present`; `last`
        with the last ones of a step. A mark is the state of its position: `counters` of all
        intervals; `mode` and its `count`, which replaces the counter of that interval; `recent` if
        the position is in no cache yet; `graduates` if it enters the caches in this step.
    coefficients : Out(stream)
        Per lane, for the AC module: `alpha_score` (the paper's _a), `alpha`, `beta`, and `update`
        if the position is in U, so that the caches are updated; `present` and `last` of the
        transfer.
    updates : Out(stream)
        Per lane: the `position` and, after the step, its `mode`, `count` and `counters`; `update`
        if it is in U; `present` and `last`. A recent position that does not graduate has mode 0 and
        count 0.
    units : Out(VectorPort).array(lanes)
        Ports of the vector units; only with `shared`.
    """

    def __init__(
        self, *, parameters: ModeDiscrepancyModuleParameters, shared: bool = False
    ) -> None:
        self.parameters = p = parameters
        self.shared = shared
        super().__init__(
            {
                "steps": In(stream.Signature(p.step_layout)),
                "active": In(stream.Signature(p.active_layout)),
                "coefficients": Out(stream.Signature(p.lanes_layout(p.coefficient_layout))),
                "updates": Out(stream.Signature(p.lanes_layout(p.update_layout))),
            }
            | unit_members(p.vector, p.lanes, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Issue the keys, and join the scores with the state of their positions."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self.units if self.shared else None, p.vector, p.lanes)
        # Vector units cannot stall: an entry for the score is reserved before its key is issued.
        row = ArrayLayout(FP16, p.lanes)
        m.submodules.scores = scores = Fifo(shape=row, depth=p.in_flight)
        m.submodules.sides = sides = MemoryFifo(shape=p.side_layout, depth=p.in_flight)

        # Each step begins with one cycle in which the vector units load its query.
        loaded, issue, used = Signal(), Signal(), Signal()
        waiting = Signal(range(p.in_flight + 1))
        active, step = self.active.payload, self.steps.payload
        m.d.comb += [
            issue.eq(loaded & self.active.valid & (waiting != p.in_flight)),
            self.active.ready.eq(loaded & (waiting != p.in_flight)),
            self.steps.ready.eq(issue & active.last),
            # The state of a position is queued in the order of the dot products.
            sides.source.valid.eq(issue),
            sides.source.payload.marks.eq(active.marks),
            sides.source.payload.present.eq(active.present),
            sides.source.payload.last.eq(active.last),
            sides.source.payload.maximum.eq(step.maximum),
            scores.source.valid.eq(units[0].o_scal_valid),
        ]
        m.d.sync += [
            # A product in flight occupies its reserved entry.
            waiting.eq(waiting + issue - used),
            loaded.eq((loaded | self.steps.valid) & ~self.steps.ready),
        ]
        for lane, unit in enumerate(units):
            m.d.comb += [
                # The query is loaded once per step.
                unit.load.eq(self.steps.valid & ~loaded),
                unit.i_vec1.eq(step.query),
                unit.valid.eq(issue),
                unit.operation.eq(Operation.DOT_PRODUCT),
                unit.i_vec2.eq(active["keys"][lane]),
                scores.source.payload[lane].eq(unit.o_scal),
            ]
        m.d.comb += used.eq(sides.sink.valid & sides.sink.ready)
        self._discrepancies(m, scores.sink, sides.sink)
        return m

    def _discrepancies(self, m: Module, scores: stream.Interface, sides: stream.Interface) -> None:
        """Pass scores and states through the lanes; collect updates, and later coefficients."""
        p = self.parameters
        m.submodules.updates = updates = Fifo(shape=p.lanes_layout(p.update_layout), depth=2)
        m.submodules.coefficients = coefficients = Fifo(
            shape=p.lanes_layout(p.coefficient_layout), depth=2
        )
        connect_streams(m, updates.sink, self.updates)
        connect_streams(m, coefficients.sink, self.coefficients)
        move, begins = Signal(), Signal()
        m.d.comb += [
            # `ready` of the FIFOs is the output of a register, and enables the whole pipeline.
            move.eq(updates.source.ready & coefficients.source.ready),
            begins.eq(scores.valid & sides.valid & move),
            scores.ready.eq(sides.valid & move),
            sides.ready.eq(scores.valid & move),
        ]
        flags = Signal(StructLayout({"present": p.lanes, "last": 1}))
        m.d.comb += [flags.present.eq(sides.payload.present), flags.last.eq(sides.payload.last)]
        latest = p.coefficient_latency
        valid = delay_line(m, begins, latest, name="valid", enable=move, reset=True)
        marked = delay_line(m, flags, latest, name="flags", enable=move)
        for output, cycle in ((updates.source, p.update_latency), (coefficients.source, latest)):
            m.d.comb += [
                output.valid.eq(valid[cycle] & move),
                output.payload.present.eq(marked[cycle].present),
                output.payload.last.eq(marked[cycle].last),
            ]
        # Operands are registered first: the FIFOs may just have become non-empty.
        maximum = delay_line(m, sides.payload.maximum, 1, name="maximum", enable=move)[-1]
        for index in range(p.lanes):
            # Lanes are independent: the positions of a transfer differ.
            m.submodules[f"lane_{index}"] = lane = DiscrepancyLane(parameters=p)
            m.d.comb += [
                lane.enable.eq(move),
                lane.score.eq(scores.payload[index]),
                lane.mark.eq(sides.payload.marks[index]),
                lane.maximum.eq(maximum),
                updates.source.payload.lanes[index].eq(lane.update),
                coefficients.source.payload.lanes[index].eq(lane.coefficient),
            ]
