"""LAD's attention computation (AC) module: Section IV-B (5), Algorithm 2."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_order import is_nan
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.cache_banks import CacheBanks
from hdl.lad.ac.cache_lane import Addend, Augend, CacheLane
from hdl.lad.ac.correction_factor import CorrectionFactor
from hdl.lad.ac.factor_stage import FactorStage
from hdl.lad.ac.tasks import Tasks, tasks
from hdl.lad.ac.update_store import UpdateStore
from hdl.lad.fp16 import FP16
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class _Parts:
    """Columns in the pipeline: issued at `begins`; results of `group` are valid at `ends`."""

    begins: Value
    columns: list[Value]
    ends: Value
    group: Value
    results: list[Value]


@dataclass(frozen=True)
class _Divided:
    """Numerator in FP16, 1 / denominator, and a flag for a denominator that is not above 0."""

    numerator: Value
    reciprocal: Value
    not_positive: Value


class AttentionComputationModule(Unit):
    """Compute one head's attention output (Equation 4) and update its caches (Equation 6).

    A word of the cache memories holds a column of A, A[:, p], with B[p] and C[p]; the last word
    holds D, E and F. All words are therefore multiplied alike (AC.1 together with AC.2) and updated
    alike (AC.5 to AC.8 together). Lane l stores columns l, l + 3, l + 6, ... in its own memory.

    **Latency** with G groups of columns: ``G + ceil(|J| / 3) + |U| * G`` cycles and the overheads
    listed on the page. J are the step's active positions, U those that update the caches.
    **Throughput** one step at a time; in parallel the caches of the previous step are written out
    and those of the next step are loaded, ``head_size + 1`` cycles each.

    **Numerics** FP16 in vector units and factors; `cache_format` in the caches and in acc, the sums
    over positions. Position i of a step is added in lane ``i % 3`` to one of `cache_stages` partial
    sums, round-robin. The partial sums are then added in a fixed order: lanes 0 and 1; lane 2 and
    the mode-based part; these two results; the other partial sums one after another. LAD, Section
    IV-B (5), Algorithm 2.

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
        max_s) of the scores. Transferred when the step is done.
    coefficients : In(stream)
        Coefficients of up to `lanes` active positions, those marked in `present`: `alpha_score`
        (the paper's _a), `alpha`, `beta`, and `update` for a position of U. All transfers but the
        `last` of a step are full; at most `updates` positions per lane and step update the caches.
    vectors : In(stream)
        The `keys` and `values` of the same positions, in the same transfers.
    outputs : Out(stream)
        The attention output `values`; `not_positive` is 1 if the denominator is not above 0.
    updated : Out(stream)
        The words of all columns after the update, in order.
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
            }
            | unit_members(p.vector, p.lanes, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Connect lanes, memories and vector units; the current task selects their operands."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self, p.vector, p.lanes)
        # Correction factors are computed ahead of their vectors. The store keeps what updates need.
        m.submodules.factors = factors = FactorStage(parameters=p)
        m.submodules.store = store = UpdateStore(parameters=p)
        connect_streams(m, self.coefficients, factors.coefficients)
        base = Signal(data.ArrayLayout(p.cache_format.width, p.columns), reset_less=True)
        divided = self._divided(m, base)

        m.submodules.banks = banks = CacheBanks(parameters=p)
        now = tasks(m, self, banks.loaded, store.busy, units[0].o_vec_valid)
        # A factor can be ready long before its vector; both are consumed in the same cycle.
        transfer = now.on("CORRECT") & factors.factors.valid & self.vectors.valid & now.turn
        begins = now.begins
        joined = factors.factors.payload
        m.d.comb += [
            now.transfer.eq(transfer),
            now.last.eq(joined.last),
            factors.begin.eq(begins),
            factors.maximum.eq(self.steps.payload.maximum),
            factors.factors.ready.eq(transfer),
            self.vectors.ready.eq(transfer),
            store.clear.eq(begins),
            store.factors.eq(joined),
            store.vectors.eq(self.vectors.payload),
            store.store.eq(
                Cat(lane.update for lane in (joined.lanes[i] for i in range(p.lanes)))
                & joined.present
                & transfer.replicate(p.lanes)
            ),
            store.begin.eq(now.begin_update),
        ]
        # Columns, corrections and updates use the same lanes, one task at a time.
        words = self._banks(m, now, store, banks)
        scalars = [self._scalars(m, index, store) for index in range(p.lanes)]
        lanes = self._lanes(m, now, units, store, base, words, banks, scalars)
        parts = self._columns(m, now, units, words)
        self._base(m, now, base, lanes[0], parts)
        slopes = [slope for slope, _, _ in scalars]
        self._vector_units(m, now, units, store, parts, slopes, divided)

        output = self.outputs
        # `steps` holds the query and the maximum until the last unit has used them.
        m.d.comb += self.steps.ready.eq(now.on("OUTPUT") & units[0].o_vec_valid)
        # The output is registered, so that the consumer can stall while the caches are written out.
        with m.If(now.on("OUTPUT") & units[0].o_vec_valid):
            m.d.sync += [
                output.valid.eq(1),
                output.payload.values.eq(units[0].o_vec),
                output.payload.not_positive.eq(divided.not_positive),
            ]
        with m.Elif(output.ready):
            m.d.sync += output.valid.eq(0)
        return m

    def _banks(self, m: Module, now: Tasks, store: Any, banks: Any) -> list[Value]:
        """Read the columns that the task needs; return the word of each lane."""
        p = self.parameters
        connect_streams(m, self.caches, banks.caches)
        connect_streams(m, banks.updated, self.updated)
        # An update reads its word after two multiplications, when the product is ready to be added.
        before = p.vector.multiply_stages + p.product_latency - 1
        reads = delay_line(m, store.shown, before, name="reads", reset=True)[-1]
        read_group = delay_line(m, store.group, before, name="read_group")[-1]
        columns = now.on("COLUMNS") & (now.place < p.groups)
        m.d.comb += [
            banks.done.eq(now.done),
            banks.read.eq(columns | reads),
            banks.read_group.eq(Mux(now.on("COLUMNS"), now.place, read_group)),
        ]
        return [Value.cast(banks.words[lane]) for lane in range(p.lanes)]

    def _lanes(
        self,
        m: Module,
        now: Tasks,
        units: list[Any],
        store: Any,
        base: Any,
        words: list[Value],
        banks: Any,
        scalars: list[tuple[Value, Value, Value]],
    ) -> list[Any]:
        """Return the adder lanes, which add corrections, combine sums and update columns."""
        p = self.parameters
        delay = p.product_latency
        lanes = [CacheLane(parameters=p) for _ in range(p.lanes)]
        # Corrections and updates are multiplied in the same vector units.
        corrections = delay_line(m, now.transfer, delay - 1, name="corrections", reset=True)[-1]
        joined, both = store.factors, p.vector.multiply_stages + delay
        updates = delay_line(m, store.shown, both, name="updates", reset=True)
        written = delay_line(m, updates[-1], p.cache_stages, name="written", reset=True)[-1]
        # A word is written back to the address it was read from, delayed by the same number of
        # cycles.
        at = delay_line(m, store.group, both + p.cache_stages, name="written_group")[-1]
        # The partial sums restart at 0 while columns are read, so that no separate clear is needed.
        zeros = now.on("COLUMNS") | now.on("WAIT")
        sums = Mux(zeros, Augend.NOTHING, Augend.RESULT)
        added = Signal(p.word_layout)
        m.d.comb += Value.cast(added).eq(Value.cast(base))
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            # Delayed in parallel with the multipliers: a correction's factor or an update's
            # scalars.
            waits, factor = delay - 1, joined.lanes[index].factor
            factor = delay_line(m, factor, waits, name=f"factor_{index}")[-1]
            there = delay_line(m, joined.present[index], waits, name=f"there_{index}")[-1]
            product = (corrections & there) | updates[-2]
            # The paper's Mux3. Selections are registered one cycle before the operands arrive.
            _, *own = scalars[index]
            chosen = Mux(updates[-2], Cat(own), factor)
            scalar = delay_line(m, chosen, 1, name=f"chosen_{index}")[-1]
            m.d.comb += [
                lane.augend.eq(Mux(updates[-2], Augend.WORD, sums)),
                lane.addend.eq(Mux(product, Addend.PRODUCT, Addend.NOTHING)),
                Value.cast(lane.word).eq(words[index]),
                lane.product.eq(units[index].o_vec),
                lane.scalars[0].eq(scalar[:16]),
                lane.scalars[1].eq(scalar[16:]),
            ]
            # The last group can have fewer columns than lanes; its missing columns are not written.
            holds = index + p.lanes * (p.groups - 1) < p.columns
            m.d.comb += [
                banks.write[index].eq(written & (Const(int(holds)) | (at != p.groups - 1))),
                m.submodules.banks.written[index].eq(Value.cast(lane.result)),
            ]
        m.d.comb += banks.write_group.eq(at)
        self._combine(m, now, lanes, added)
        return lanes

    def _combine(self, m: Module, now: Tasks, lanes: list[Any], added: Any) -> None:
        """Add the lanes' sums and their interleaved partial sums in a fixed order."""
        p = self.parameters
        combine, first, second = now.on("COMBINE"), now.rotation == 0, now.rotation == 1
        later = (now.rotation >= 3) & (now.rotation <= p.cache_stages + 1) & (now.slot == 0)
        # Lanes 0 and 1, lane 2 and the mode-based part; these two results; then each other partial
        # sum.
        joins, begins = combine & (first | second | later), combine & first & (now.slot == 0)
        one = delay_line(m, first, 1, name="one")[-1]
        two = delay_line(m, second, 1, name="two")[-1]
        m.d.comb += [
            Value.cast(lanes[0].other).eq(
                Mux(
                    one,
                    Value.cast(lanes[1].result),
                    Mux(two, Value.cast(lanes[2].result), Value.cast(added)),
                )
            ),
            Value.cast(lanes[2].other).eq(Value.cast(added)),
        ]
        for lane, others in ((lanes[0], joins), (lanes[2], begins)):
            with m.If(others):
                m.d.comb += lane.addend.eq(Addend.OTHER)

    def _scalars(self, m: Module, index: int, store: Any) -> tuple[Value, Value, Value]:
        """Return alpha times a lane's element; and later alpha and beta times that element.

        The later pair is valid one cycle before the product to which it is added.
        """
        p = self.parameters
        stages = p.vector.multiply_stages
        results = []
        for name, coefficient in (("slope", store.alpha), ("intercept", store.beta)):
            m.submodules[f"{name}_{index}"] = multiply = FloatMultiply(stages=stages)
            m.d.comb += [
                Value.cast(multiply.a).eq(coefficient),
                Value.cast(multiply.b).eq(store.elements[index]),
            ]
            results.append(Value.cast(multiply.result))
        # B and C are delayed by the latency of the vector unit less one cycle.
        held = delay_line(m, Cat(results), p.product_latency - 1, name=f"scalars_{index}")[-1]
        return results[0], held[:16], held[16:]

    def _columns(self, m: Module, now: Tasks, units: list[Any], words: list[Value]) -> _Parts:
        """Return the mode-based numerator and denominator, one group of columns per cycle."""
        p = self.parameters
        size = p.vector.head_size
        reads = now.on("COLUMNS") & (now.place < p.groups)
        shown = delay_line(m, Cat(reads, now.place), 2, name="column", reset=True)[-1]
        results, narrowed = [], []
        # The vector units read columns rounded to FP16; the stored caches are not rounded.
        for index, cached in enumerate(words):
            codes = []
            for element in range(size + 2):
                code: Any = cached.word_select(element, p.cache_format.width)
                if p.cache_format != BINARY16:
                    narrow = FloatConvert(source=p.cache_format, target=BINARY16)
                    m.submodules[f"narrow_{index}_{element}"] = narrow
                    m.d.comb += Value.cast(narrow.a).eq(code)
                    code = Value.cast(narrow.result)
                codes.append(code)
            word = delay_line(m, Cat(codes), 1, name=f"narrowed_{index}")[-1]
            beside = delay_line(m, word[16 * size :], p.sum_latency, name=f"beside_{index}")[-1]
            m.submodules[f"part_{index}"] = part = CorrectionFactor(parameters=p)
            m.d.comb += [
                part.enable.eq(1),
                part.x.eq(units[index].o_scal),
                part.maximum.eq(self.steps.payload.maximum),
                part.slope.eq(beside[:16]),
                part.intercept.eq(beside[16:]),
            ]
            results.append(part.result)
            narrowed.append(word[: 16 * size])
        # The group number is delayed with the data: results arrive while later columns are read.
        latency = p.sum_latency + p.factor_stages
        ended = delay_line(m, shown, latency, name="part", reset=True)[-1]
        return _Parts(shown[0], narrowed, ended[0], ended[1:], results)

    def _base(self, m: Module, now: Tasks, base: Any, lane: Any, parts: _Parts) -> None:
        """Hold the mode-based part, later the next sum to add, at the end the total (acc)."""
        p = self.parameters
        combine = now.on("COMBINE")
        takes = (now.rotation >= 2) & (now.rotation <= p.cache_stages)
        ends = (now.rotation == p.cache_stages + 2) & (now.slot == 0)
        wide = []
        for index, part in enumerate(parts.results):
            code: Any = part
            if p.cache_format != BINARY16:
                m.submodules[f"widen_{index}"] = widen = FloatConvert(
                    source=BINARY16, target=p.cache_format
                )
                m.d.comb += Value.cast(widen.a).eq(part)
                code = Value.cast(widen.result)
            wide.append(code)
        for column in range(p.columns):
            # Each column has its own register until the sums are combined.
            with m.If(parts.ends & (parts.group == column // p.lanes)):
                m.d.sync += base[column].eq(wide[column % p.lanes])
        taken = combine & ((takes & (now.slot == now.rotation - 1)) | ends)
        with m.If(delay_line(m, taken, 1, name="taken", reset=True)[-1]):
            m.d.sync += Value.cast(base).eq(Value.cast(lane.result))

    def _divided(self, m: Module, base: Any) -> _Divided:
        """Return the numerator in FP16 and, after `reciprocal_stages`, 1 / denominator."""
        p = self.parameters
        codes = []
        for index in range(p.columns):
            code: Any = base[index]
            if p.cache_format != BINARY16:
                m.submodules[f"round_{index}"] = narrow = FloatConvert(
                    source=p.cache_format, target=BINARY16
                )
                m.d.comb += Value.cast(narrow.a).eq(code)
                code = Value.cast(narrow.result)
            codes.append(code)
        # A register separates the rounding from the multiplication and the reciprocal's table.
        rounded = delay_line(m, Cat(codes), 1, name="rounded")[-1]
        m.submodules.reciprocal = reciprocal = TakagiReciprocal(stages=p.reciprocal_stages)
        denominator = Signal(FP16)
        m.d.comb += [denominator.eq(rounded[-16:]), Value.cast(reciprocal.a).eq(denominator)]
        # A fitted line can be below 0, and so can the sum of many such weights: then the output is
        # invalid.
        positive = ~denominator[-1] & denominator[:-1].any() & ~is_nan(BINARY16, denominator)
        return _Divided(rounded[:-16], Value.cast(reciprocal.result), ~positive)

    def _vector_units(
        self,
        m: Module,
        now: Tasks,
        units: list[Any],
        store: Any,
        parts: _Parts,
        slopes: list[Value],
        divided: _Divided,
    ) -> None:
        """Drive the vector units with the operands of the current task, from registers."""
        p = self.parameters
        # The paper's Mux1: the task alone selects the operands of the units, and never two tasks at
        # once.
        scaled = delay_line(m, store.shown, p.vector.multiply_stages, name="scaled", reset=True)[-1]
        # AC.4 is one more scaling: the first unit multiplies the numerator by the reciprocal.
        divides = now.on("OUTPUT") & (now.place == 0)
        for index, unit in enumerate(units):
            value = Value.cast(self.vectors.payload["values"][index])
            vector, scalar = Value.cast(store.key), slopes[index]
            selected = Const(0, 1)
            if index == 0:
                selected = divides
                vector = Mux(divides, divided.numerator, vector)
                scalar = Mux(divides, divided.reciprocal, scalar)
            factor = store.factors.lanes[index].factor
            dot = Mux(parts.begins, Operation.DOT_PRODUCT, Operation.SCALE)
            begins = parts.begins | now.transfer | scaled | selected
            valid = delay_line(m, begins, 1, name=f"valid_{index}", reset=True)[-1]
            operands = Cat(
                dot,
                Mux(now.transfer, factor, scalar),
                Mux(parts.begins, parts.columns[index], Mux(now.transfer, value, vector)),
            )
            held = delay_line(m, operands, 1, name=f"operands_{index}")[-1]
            m.d.comb += [
                unit.load.eq(store.clear),
                unit.i_vec1.eq(self.steps.payload.query),
                unit.valid.eq(valid),
                Cat(
                    Value.cast(unit.operation), Value.cast(unit.i_scal), Value.cast(unit.i_vec2)
                ).eq(held),
            ]
