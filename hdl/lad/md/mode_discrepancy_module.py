"""LAD's mode discrepancy module: exact scores of active positions, and what follows from them."""

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
    """Look at `lanes` active positions a cycle: score, interval, counters, mode, coefficients.

    The vector units do not wait; a score takes a place in a FIFO that was kept for it. What is
    known of a position waits in a memory until its score is there.

    **Latency** ``scalar_latency + 2 * add_stages + multiply_stages + 5`` cycles from a key to its
    coefficients. **Throughput** `lanes` positions a cycle, and a cycle a step for its query.

    **Numerics** FP16: ``s = <query, key>`` as the vector unit adds, ``x = s - maximum``,
    ``alpha = a[interval] - a[mode]``, ``beta = b[interval] - b[mode]`` and ``alpha_score = alpha *
    s``, each rounded once; the mode is the one before the step. Counts end at 4095. LAD, Section
    IV-B (4).

    Parameters
    ----------
    parameters : ModeDiscrepancyModuleParameters
        Dimensions.
    shared : bool
        Whether the vector units stand outside.

    Members
    -------
    steps : In(stream)
        A step's `query`, divided by the root of the head size, and the `maximum` of its scores.
    active : In(stream)
        `keys` and `marks` of up to `lanes` active positions, those `present`; `last` with a step's
        last. A mark's `counters` are of all intervals, its `count` replaces that of its `mode`. A
        `recent` position is in no cache; one that `graduates` is recent, and comes in.
    coefficients : Out(stream)
        In each lane, for the attention computation, `alpha_score`, `alpha` and `beta`, and whether
        there is an `update` of the caches by them; `present` and `last` as they came.
    updates : Out(stream)
        In each lane the `position` behind the step: its `mode`, `count` and `counters`, and whether
        it is an `update`; `present` and `last`. A recent position that does not graduate has mode
        and count 0.
    units : Out(VectorPort).array(lanes)
        The vector units; only with `shared`.
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

    def elaborate(self, platform: Any) -> Module:
        """Have the scores computed, and join them with what waits for them."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self, p.vector, p.lanes)
        # Vector units do not wait, so a score has a place before its key is issued.
        row = ArrayLayout(FP16, p.lanes)
        m.submodules.scores = scores = Fifo(shape=row, depth=p.in_flight)
        m.submodules.sides = sides = MemoryFifo(shape=p.side_layout, depth=p.in_flight)

        # A step begins with a cycle in which the vector units take its query.
        loaded, issue, used = Signal(), Signal(), Signal()
        waiting = Signal(range(p.in_flight + 1))
        active, step = self.active.payload, self.steps.payload
        m.d.comb += [
            issue.eq(loaded & self.active.valid & (waiting != p.in_flight)),
            self.active.ready.eq(loaded & (waiting != p.in_flight)),
            self.steps.ready.eq(issue & active.last),
            # What a position brings along waits beside its dot product, in the same order.
            sides.source.valid.eq(issue),
            sides.source.payload.marks.eq(active.marks),
            sides.source.payload.present.eq(active.present),
            sides.source.payload.last.eq(active.last),
            sides.source.payload.maximum.eq(step.maximum),
            scores.source.valid.eq(units[0].o_scal_valid),
        ]
        m.d.sync += [
            # A product under way has its place behind the unit, which cannot wait.
            waiting.eq(waiting + issue - used),
            loaded.eq((loaded | self.steps.valid) & ~self.steps.ready),
        ]
        for lane, unit in enumerate(units):
            m.d.comb += [
                # The query is loaded once a step; all its keys pass by it.
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
        """Turn scores into updates, and these into coefficients, in one pipeline."""
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
            # The FIFOs' ready is out of registers: who waits there stops the whole pipeline.
            move.eq(updates.ready & coefficients.ready),
            begins.eq(scores.valid & sides.valid & move),
            scores.ready.eq(sides.valid & move),
            sides.ready.eq(scores.valid & move),
        ]
        # Updates leave as soon as the mode is known, coefficients two operators later.
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
        # Operands come out of registers, for the FIFOs may just have been empty.
        maximum = delay_line(m, sides.payload.maximum, 1, name="maximum", enable=move)[-1]
        for lane in range(p.lanes):
            mark = sides.payload.marks[lane]
            # Each lane is a pipeline of its own: positions of a transfer never meet.
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
        """Return a lane's position behind the step, and a cycle before, its interval and mode.

        The maximum is a cycle later than the score and the mark.
        """
        p = self.parameters
        m.submodules[f"subtract_{lane}"] = subtract = FloatAdd(
            subtractor=True, stages=p.add_stages, enable=True
        )
        m.submodules[f"update_{lane}"] = update = ModeUpdate(parameters=p)
        # The mark is as late as the difference that it belongs to.
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
        """Set a lane's coefficients: of the interval less those of the mode before the step."""
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
        # The product is the last of the three: the differences wait for it.
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
