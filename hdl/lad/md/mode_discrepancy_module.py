"""LAD's mode discrepancy (MD) module: Section IV-B (4)."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.fp16 import FP16
from hdl.lad.md.line_difference import LineDifference
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_update import ModeUpdate
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
        units = vector_units(m, self, p.vector, p.lanes)
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

    def _discrepancies(self, m: Module, scores: Any, sides: Any) -> None:
        """Compute updates from scores, and coefficients from updates, in one pipeline."""
        p = self.parameters
        kinds = (("updates", p.update_layout), ("coefficients", p.coefficient_layout))
        outputs = []
        for name, layout in kinds:
            fifo = Fifo(shape=p.lanes_layout(layout), depth=2)
            m.submodules[name] = fifo
            connect_streams(m, fifo.sink, getattr(self, name))
            outputs.append(fifo.source)
        updates, coefficients = outputs
        move, begins = Signal(), Signal()
        m.d.comb += [
            # `ready` of the FIFOs is the output of a register, and enables the whole pipeline.
            move.eq(updates.ready & coefficients.ready),
            begins.eq(scores.valid & sides.valid & move),
            scores.ready.eq(sides.valid & move),
            sides.ready.eq(scores.valid & move),
        ]
        # Updates are output when the mode is known, coefficients two operators later.
        early = p.add_stages + 3
        late = early + p.add_stages + p.multiply_stages
        flags = Signal(StructLayout({"present": p.lanes, "last": 1}))
        m.d.comb += [
            flags.present.eq(sides.payload.present),
            flags.last.eq(sides.payload.last),
        ]
        valid = delay_line(m, begins, late, name="valid", enable=move, reset=True)
        marked = delay_line(m, flags, late, name="flags", enable=move)
        for output, cycle in ((updates, early), (coefficients, late)):
            m.d.comb += [
                output.valid.eq(valid[cycle] & move),
                output.payload.present.eq(marked[cycle].present),
                output.payload.last.eq(marked[cycle].last),
            ]
        # Operands are registered first: the FIFOs may just have become non-empty.
        maximum = delay_line(m, sides.payload.maximum, 1, name="maximum", enable=move)[-1]
        for lane in range(p.lanes):
            mark = sides.payload.marks[lane]
            # Lanes are independent: the positions of a transfer differ.
            update, interval, mode = self._update(
                m, lane, move, scores.payload[lane], maximum, mark
            )
            m.d.comb += updates.payload.lanes[lane].eq(update)
            score = delay_line(
                m, scores.payload[lane], late - p.multiply_stages, name=f"score_{lane}", enable=move
            )[-1]
            one = coefficients.payload.lanes[lane]
            self._differences(m, lane, move, interval, mode, score, one)
            changed = delay_line(m, update.update, late - early, name=f"update_{lane}", enable=move)
            m.d.comb += one.update.eq(changed[-1])

    def _update(
        self, m: Module, lane: int, move: Value, score: Value, maximum: Value, mark: Any
    ) -> tuple[Any, Value, Value]:
        """Return a lane's position after the step, and one cycle earlier its interval and mode.

        The maximum arrives one cycle after the score and the mark.
        """
        p = self.parameters
        m.submodules[f"subtract_{lane}"] = subtract = FloatAdd(
            subtractor=True, stages=p.add_stages, enable=True
        )
        m.submodules[f"update_{lane}"] = update = ModeUpdate(parameters=p)
        # The mark is delayed by the latency of the difference.
        waited = delay_line(m, mark, 1 + p.add_stages, name=f"mark_{lane}", enable=move)[-1]
        minuend = delay_line(m, score, 1, name=f"minuend_{lane}", enable=move)[-1]
        m.d.comb += [
            Value.cast(subtract.a).eq(minuend),
            Value.cast(subtract.b).eq(maximum),
            subtract.subtract.eq(1),
            subtract.enable.eq(move),
            update.enable.eq(move),
            update.difference.eq(Value.cast(subtract.result)),
            update.mark.eq(waited),
        ]
        return update.result, update.interval, update.mode

    def _differences(
        self, m: Module, lane: int, move: Value, interval: Any, mode: Any, score: Any, one: Any
    ) -> None:
        """Drive a lane's alpha, beta and alpha_score: the actual interval less the mode."""
        p = self.parameters
        m.submodules[f"product_{lane}"] = product = FloatMultiply(
            stages=p.multiply_stages, enable=True
        )
        results = {}
        for name, codes in (("alpha", p.table.a), ("beta", p.table.b)):
            difference = LineDifference(codes=codes, stages=p.add_stages)
            m.submodules[f"{name}_{lane}"] = difference
            m.d.comb += [
                difference.interval.eq(interval),
                difference.mode.eq(mode),
                difference.enable.eq(move),
            ]
            results[name] = difference.result
        # The product is computed last; the differences are delayed to match.
        held = delay_line(
            m,
            Cat(results["alpha"], results["beta"]),
            p.multiply_stages,
            name=f"held_{lane}",
            enable=move,
        )[-1]
        m.d.comb += [
            product.enable.eq(move),
            Value.cast(product.a).eq(results["alpha"]),
            Value.cast(product.b).eq(score),
            one.alpha_score.eq(Value.cast(product.result)),
            one.alpha.eq(held[:16]),
            one.beta.eq(held[16:]),
        ]
