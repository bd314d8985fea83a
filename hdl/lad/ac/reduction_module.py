"""The paper's reduction module: all sums over positions, and the sums of column updates."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.cache_lane import Addend, Augend, CacheLane
from hdl.lad.ac.task_sequencer import Task
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class ReductionModule(Unit):
    """Add the products of active positions to acc, and those of updates to columns of the caches.

    No adder closes a loop in one cycle: T = `cache_stages` partial sums circulate in each. Slot s
    is the partial sum at the adders' output. A position is added to the next partial sum in turn,
    so that the order of additions depends on no stall. `COMBINE` has T + 3 rotations of T cycles:

    - rotation 0: lane 0 adds lane 1's sums; lane 2 adds the mode-based part to its partial sum 0;
    - rotation 1: lane 0 adds lane 2's sums;
    - rotations 2 to T: `total` takes lane 0's partial sum of slot 1, 2, ...
    - rotations 3 to T + 1: lane 0 adds `total` to its partial sum 0;
    - rotation T + 2: `total` takes that sum.

    **Latency** `product_latency` cycles from `correct` to the addition of the products, T cycles
    for the addition. **Throughput** a position or a column per lane and cycle. **Numerics**
    `cache_format`, each sum rounded once.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Lanes, number and format of the columns, register stages.

    Members
    -------
    task : In(Task)
        The current task.
    correct, present, factors : In
        Positions are issued to the vector units: the lanes that have one, and the paper's cf.
    further : In(1)
        The part is not the first one of its step: acc takes the place of the mode-based part.
    turn : Out(1)
        Positions that are issued now will be added to the partial sum in turn.
    part_valid, part_group, parts : In
        Mode-based parts of a group of columns, in FP16; those of the next step no earlier than T
        + 1 cycles after `COMBINE` begins.
    aligned : Out(1)
        `COMBINE` can begin in the next cycle.
    combined : Out(1)
        Combination ends: `total` is acc from 2 cycles later until the next combination.
    total : Out(ArrayLayout(columns))
        Numerator and denominator, the paper's acc.
    products : In(ArrayLayout(16, head_size)).array(lanes)
        Results of the vector units, the paper's rv.
    update, scalars : In
        The products of the next cycle update columns; the addends of their last two elements.
    words : In(word_layout).array(lanes)
        The columns to update, with the products.
    results : Out(word_layout).array(lanes)
        The updated columns, T cycles after the products.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "task": In(Task),
                "correct": In(1),
                "present": In(p.lanes),
                "factors": In(FP16).array(p.lanes),
                "further": In(1),
                "turn": Out(1),
                "part_valid": In(1),
                "part_group": In(p.group_shape),
                "parts": In(FP16).array(p.lanes),
                "aligned": Out(1),
                "combined": Out(1),
                "total": Out(p.total_layout),
                "products": In(p.vector.vector_layout).array(p.lanes),
                "update": In(1),
                "scalars": In(p.scalars_layout).array(p.lanes),
                "words": In(p.word_layout).array(p.lanes),
                "results": Out(p.word_layout).array(p.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the operands of the lanes; they are registered in front of the adders."""
        m = Module()
        p = self.parameters
        lanes = [CacheLane(parameters=p) for _ in range(p.lanes)]
        delay = p.product_latency - 1
        corrects = delay_line(m, self.correct, delay, name="corrects", reset=True)[-1]
        # In the first rotation in which products arrive after an update, the adders' old contents
        # are replaced, so that no separate clear is needed.
        sums = delay_line(
            m, self.task != Task.UPDATE, delay + p.cache_stages, name="sums", reset=True
        )[-1]
        sums = Mux(sums, Augend.RESULT, Augend.NOTHING)
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            factor = delay_line(m, self.factors[index], delay, name=f"factor_{index}")[-1]
            present = delay_line(m, self.present[index], delay, name=f"present_{index}")[-1]
            # The paper's Mux3: the scalars of an update, or the factor itself for the denominator.
            scalars = Value.cast(self.scalars[index])
            selected = Mux(self.update, scalars, factor)
            adds = (corrects & present) | self.update
            m.d.comb += [
                lane.augend.eq(Mux(self.update, Augend.WORD, sums)),
                lane.addend.eq(Mux(adds, Addend.PRODUCT, Addend.NOTHING)),
                lane.word.eq(self.words[index]),
                lane.product.eq(self.products[index]),
                Cat(lane.scalars[0], lane.scalars[1]).eq(selected),
                self.results[index].eq(lane.result),
            ]
        self._combine(m, lanes)
        return m

    def _combine(self, m: Module, lanes: list[CacheLane]) -> None:
        """Count slots and rotations; add the sums in the order of the class's docstring."""
        p, sums = self.parameters, self.parameters.cache_stages
        # Both run in every task, since the partial sums always circulate: the slot of the adders'
        # next result, and that of the result to which products issued now will be added.
        slot, ahead = (
            Signal(range(sums), init=first % sums, name=name)
            for name, first in (("slot", 1), ("ahead", p.product_latency))
        )
        for counter in (slot, ahead):
            m.d.sync += counter.eq(Mux(counter == sums - 1, 0, counter + 1))
        turn, rotation = Signal(range(sums)), Signal(range(sums + 3))
        with m.If(self.correct):
            m.d.sync += turn.eq(Mux(turn == sums - 1, 0, turn + 1))
        combine = self.task == Task.COMBINE
        with m.Switch(self.task):
            with m.Case(Task.UPDATE):
                m.d.sync += turn.eq(0)
            with m.Case(Task.SETTLE):
                m.d.sync += rotation.eq(0)
            with m.Case(Task.COMBINE), m.If(self.aligned):
                m.d.sync += rotation.eq(rotation + 1)
        m.d.comb += [
            self.turn.eq(ahead == turn),
            self.aligned.eq(slot == sums - 1),
            self.combined.eq(combine & (rotation == sums + 2) & (slot == 0)),
        ]

        first, second = rotation == 0, rotation == 1
        others = (rotation >= 3) & (rotation <= sums + 1) & (slot == 0)
        # The operands are selected one cycle after the task, in the lanes' registers.
        was_first, was_second = (
            delay_line(m, one, 1, name=name)[-1]
            for one, name in ((first, "was_first"), (second, "was_second"))
        )
        base = Signal(p.total_layout, reset_less=True)
        with m.If(combine & (first | second | others)):
            m.d.comb += lanes[0].addend.eq(Addend.OTHER)
        with m.If(combine & first & (slot == 0)):
            m.d.comb += lanes[2].addend.eq(Addend.OTHER)
        m.d.comb += [
            Value.cast(lanes[0].other).eq(
                Mux(
                    was_first,
                    Value.cast(lanes[1].result),
                    Mux(was_second, Value.cast(lanes[2].result), Value.cast(self.total)),
                )
            ),
            Value.cast(lanes[2].other).eq(
                Mux(self.further, Value.cast(self.total), Value.cast(base))
            ),
        ]
        takes = (rotation >= 2) & (rotation <= sums) & (slot == rotation - 1)
        with m.If(
            delay_line(m, (combine & takes) | self.combined, 1, name="taken", reset=True)[-1]
        ):
            m.d.sync += Value.cast(self.total).eq(Value.cast(lanes[0].result))
        self._hold_parts(m, base)

    def _hold_parts(self, m: Module, base: data.View) -> None:
        """Hold the mode-based part of a step until its sums are combined."""
        p = self.parameters
        parts = []
        for lane, part in enumerate(self.parts):
            code = Value.cast(part)
            if p.cache_format != BINARY16:
                m.submodules[f"widen_{lane}"] = widen = FloatConvert(
                    source=BINARY16, target=p.cache_format
                )
                m.d.comb += Value.cast(widen.a).eq(part)
                code = Value.cast(widen.result)
            parts.append(code)
        for column in range(p.columns):
            with m.If(self.part_valid & (self.part_group == column // p.lanes)):
                m.d.sync += base[column].eq(parts[column % p.lanes])
