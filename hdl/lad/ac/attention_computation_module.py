"""LAD's attention computation (AC) module: Section IV-B (5), Algorithm 2."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.cache_banks import CacheBanks
from hdl.lad.ac.column_pass import ColumnPass
from hdl.lad.ac.column_update import ColumnUpdate
from hdl.lad.ac.factor_stage import FactorStage
from hdl.lad.ac.mode_based_part import ModeBasedPart
from hdl.lad.ac.output_division import OutputDivision
from hdl.lad.ac.reduction_module import ReductionModule
from hdl.lad.ac.task_sequencer import Task, TaskSequencer
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class AttentionComputationModule(Unit):
    """Compute one head's attention output (Equation 4) and update its caches (Equation 6).

    A word of the cache memories holds a column of A, A[:, p], with B[p] and C[p]; the last word
    holds D, E and F. All words are therefore multiplied alike (AC.1 together with AC.2) and updated
    alike (AC.5 to AC.8 together). Lane l stores columns l, l + 3, l + 6, ... in its own memory.

    **Latency** with G groups of columns: ``G + ceil(|J| / 3) + |U| * G`` cycles and the overheads
    listed on the page. J are the step's active positions, U those that update the caches. A step
    with more positions in U than there is room for is computed in parts: sums are combined and
    columns updated before the first transfer without room, then the remaining positions follow.
    **Throughput** one step at a time; in parallel the columns of the next step are read, and the
    caches of a previous step are written out and those of a later one are loaded, ``head_size + 1``
    cycles each.

    **Numerics** FP16 in vector units and factors; `cache_format` in the caches and in acc, the sums
    over positions. Position i of a step is added in lane ``i % 3`` to one of `cache_stages` partial
    sums, round-robin. The partial sums are then added in a fixed order: lanes 0 and 1; lane 2 and
    the mode-based part; these two results; the other partial sums one after another. Each further
    part of a step begins again with lane 0 and adds to the result of the parts before it. LAD,
    Section IV-B (5), Algorithm 2.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Vector size, cache format and register stages.
    shared : bool
        Use vector units outside the module, through `units`.

    Members
    -------
    caches : In(stream)
        The `word` of each column in order, once before each step.
    steps : In(stream)
        The `query` divided by the square root of the head size, and the `maximum` (the paper's
        max_s) of the scores. Transferred when the step begins.
    coefficients : In(stream)
        Coefficients of up to `lanes` active positions, those marked in `present`: `alpha_score`
        (the paper's _a), `alpha`, `beta`, and `update` for a position of U. All transfers but the
        `last` of a step are full.
    vectors : In(stream)
        The `keys` and `values` of the same positions, in the same transfers.
    outputs : Out(stream)
        The attention output `values`; `not_positive` is 1 if the denominator is not above 0.
    updated : Out(stream)
        The words of all columns after the update, in order.
    over : Out(1)
        A step is complete: its output is computed, and its columns are updated.
    units : Out(VectorPort).array(3)
        Ports of the vector units; only with `shared`.
    """

    def __init__(
        self, *, parameters: AttentionComputationModuleParameters, shared: bool = False
    ) -> None:
        self.parameters = p = parameters
        self.shared = shared
        super().__init__(
            {
                "caches": In(stream.Signature(p.cache_layout)),
                "steps": In(stream.Signature(p.step_layout)),
                "coefficients": In(stream.Signature(p.coefficients_layout)),
                "vectors": In(stream.Signature(p.vectors_layout)),
                "outputs": Out(stream.Signature(p.output_layout)),
                "updated": Out(stream.Signature(p.cache_layout)),
                "over": Out(1),
            }
            | unit_members(p.vector, p.lanes, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts; the task selects the units' operands, which is the paper's Mux1."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self.units if self.shared else None, p.vector, p.lanes)
        m.submodules.sequencer = sequencer = TaskSequencer(parameters=p)
        m.submodules.columns = columns = ColumnPass(parameters=p)
        m.submodules.banks = banks = CacheBanks(parameters=p)
        m.submodules.factors = factors = FactorStage(parameters=p)
        m.submodules.mode_based = mode_based = ModeBasedPart(parameters=p)
        m.submodules.reduction = reduction = ReductionModule(parameters=p)
        m.submodules.update = update = ColumnUpdate(parameters=p)
        m.submodules.division = division = OutputDivision(parameters=p)
        step, output = self.steps.payload, self.outputs
        connect_streams(m, self.caches, banks.caches)
        connect_streams(m, banks.updated, self.updated)
        connect_streams(m, self.coefficients, factors.coefficients)

        # The columns of a step are read while the positions of the previous one are complete, so
        # that one maximum is in use at a time.
        maximum = Signal(16, reset_less=True)
        with m.If(sequencer.begin):
            m.d.sync += maximum.eq(step.maximum)
        # A factor can be ready long before its vectors; both are accepted in the same cycle.
        positions, full = factors.factors.payload, Signal()
        changes = Cat(positions.lanes[lane].update for lane in range(p.lanes)) & positions.present
        correct, busy = Signal(), Signal()
        latency = p.vector.vector_latency
        ends = delay_line(m, sequencer.divide, latency, name="divides", reset=True)[-1]
        m.d.comb += [
            # The units have other operands, which cannot wait.
            busy.eq(mode_based.valid | sequencer.divide),
            correct.eq(
                (sequencer.task == Task.CORRECT)
                & factors.factors.valid
                & self.vectors.valid
                & reduction.turn
                & ~full
                & ~busy
            ),
            # Whether a part ends depends on the positions only, and not on their time.
            full.eq(factors.factors.valid & (changes & update.full).any()),
            sequencer.full.eq(full),
            sequencer.step.eq(self.steps.valid),
            sequencer.loaded.eq(banks.loaded),
            sequencer.idle.eq(columns.idle),
            sequencer.complete.eq(columns.complete),
            sequencer.ended.eq(correct & positions.last),
            sequencer.aligned.eq(reduction.aligned),
            sequencer.combined.eq(reduction.combined),
            sequencer.passing.eq(columns.passing),
            sequencer.updating.eq(update.busy),
            sequencer.free.eq(~output.valid & ~mode_based.valid & ~update.valid),
            sequencer.divided.eq(ends),
            self.steps.ready.eq(sequencer.begin),
            self.over.eq(sequencer.over),
            self.vectors.ready.eq(correct),
            factors.factors.ready.eq(correct),
            factors.begin.eq(sequencer.begin),
            factors.maximum.eq(maximum),
            banks.begin.eq(sequencer.begin),
            banks.done.eq(sequencer.done),
            columns.begin.eq(sequencer.begin),
            banks.read.eq(columns.read),
            banks.read_group.eq(columns.group),
            banks.fetch.eq(update.read),
            banks.fetch_group.eq(update.read_group),
            banks.write.eq(update.write),
            banks.write_group.eq(update.write_group),
            mode_based.read.eq(columns.read),
            mode_based.group.eq(columns.group),
            mode_based.maximum.eq(maximum),
            reduction.task.eq(sequencer.task),
            reduction.further.eq(sequencer.further),
            reduction.correct.eq(correct),
            reduction.present.eq(positions.present),
            reduction.part_valid.eq(mode_based.part_valid),
            reduction.part_group.eq(mode_based.part_group),
            reduction.update.eq(update.read),
            update.clear.eq(sequencer.restart),
            update.store.eq(changes & correct.replicate(p.lanes)),
            update.factors.eq(positions),
            update.vectors.eq(self.vectors.payload),
            update.begin.eq(sequencer.update),
            division.total.eq(reduction.total),
        ]
        for lane, unit in enumerate(units):
            m.d.comb += [
                Value.cast(mode_based.words[lane]).eq(banks.words[lane]),
                mode_based.products[lane].eq(unit.o_scal),
                reduction.factors[lane].eq(positions.lanes[lane].factor),
                reduction.parts[lane].eq(mode_based.parts[lane]),
                reduction.products[lane].eq(unit.o_vec),
                reduction.scalars[lane].eq(update.scalars[lane]),
                Value.cast(reduction.words[lane]).eq(banks.fetched[lane]),
                banks.written[lane].eq(Value.cast(reduction.results[lane])),
            ]
            # Operands of the tasks that scale a vector; the columns are multiplied by the query.
            scaled = [
                (update.valid, update.slopes[lane], update.key),
                (correct, positions.lanes[lane].factor, self.vectors.payload["values"][lane]),
            ]
            if lane == 0:
                # AC.4 is one more scaling: the first unit multiplies both parts of the quotient.
                scaled.insert(1, (sequencer.divide, division.reciprocal, division.numerator))
            scalar, vector = (Value.cast(operand) for operand in scaled[0][1:])
            for selected, own_scalar, own_vector in scaled[1:]:
                scalar = Mux(selected, own_scalar, scalar)
                vector = Mux(selected, Value.cast(own_vector), vector)
            begins = mode_based.valid | Cat(selected for selected, _, _ in scaled).any()
            m.d.comb += [
                unit.load.eq(sequencer.begin),
                unit.i_vec1.eq(step.query),
                unit.valid.eq(begins),
                unit.operation.eq(Mux(mode_based.valid, Operation.DOT_PRODUCT, Operation.SCALE)),
                unit.i_scal.eq(scalar),
                Value.cast(unit.i_vec2).eq(
                    Mux(mode_based.valid, Value.cast(mode_based.columns[lane]), vector)
                ),
            ]
        # The output is registered, so that the consumer can stall while the caches are written out.
        with m.If(ends):
            m.d.sync += [
                output.valid.eq(1),
                output.payload.values.eq(units[0].o_vec),
                output.payload.not_positive.eq(division.not_positive),
            ]
        with m.Elif(output.ready):
            m.d.sync += output.valid.eq(0)
        return m
