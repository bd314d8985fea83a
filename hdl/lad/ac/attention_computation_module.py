"""LAD's attention computation: outputs from caches and corrections, and the caches' update."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.cache_banks import CacheBanks
from hdl.lad.ac.cache_lane import Addend, Augend, CacheLane
from hdl.lad.ac.correction_factor import CorrectionFactor
from hdl.lad.ac.factor_stage import FactorStage
from hdl.lad.ac.tasks import Tasks, tasks
from hdl.lad.ac.update_store import UpdateStore
from hdl.lad.fp16 import FP16
from hdl.lad.ordered import is_nan
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class _Parts:
    """Columns on their way: to the vector units as it `begins`, back as a `group` as it `ends`."""

    begins: Value
    columns: list[Value]
    ends: Value
    group: Value
    results: list[Value]


@dataclass(frozen=True)
class _Divided:
    """Numerator in FP16, reciprocal of the denominator, and whether that is not above 0."""

    numerator: Value
    reciprocal: Value
    not_positive: Value


class AttentionComputationModule(Unit):
    """One head's attention of a step by Equation 4, and Equation 6 behind it.

    Column p of A stands in a word with its elements of B and C, and D with E and F in the last:
    every word is multiplied, and later updated, in the same way (AC.1 with AC.2, and AC.5 to AC.8
    at once). Lane l has the words of columns l, l + 3, l + 6, ... in a memory of its own.

    **Latency** with G groups of columns, ceil(|J| / 3) transfers of active positions and |U|
    updated positions: ``G + ceil(|J| / 3) + |U| * G`` cycles and what the page lists beside them.
    **Throughput** one step at a time; beside it the caches of the one before leave, then those of
    the next come, in ``head_size + 1`` cycles each.

    **Numerics** vector units and factors in FP16; caches and all sums over positions in
    `cache_format`. Position i of a step is added in lane ``i % 3``, to one of `cache_stages` sums
    in turn; then lanes 0 and 1, lane 2 and the part of the caches, both, and one sum after the
    other. A denominator that is not above 0 sets a flag. LAD, Section IV-B (5), Algorithm 2.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.
    shared : bool
        Whether the vector units stand outside.

    Members
    -------
    caches : In(stream)
        The `word` of each column in order, before each step.
    steps : In(stream)
        The `query`, divided by the root of the head size, and the `maximum` of the scores; taken
        when the step is done.
    coefficients : In(stream)
        `lanes` of active positions, those `present`: `alpha_score`, `alpha`, `beta` and `update`;
        all but the last transfer full, at most `updates` a lane to update; `last`.
    vectors : In(stream)
        Their `keys` and `values`, transfer by transfer.
    outputs : Out(stream)
        The head's output, and whether the denominator was `not_positive`.
    updated : Out(stream)
        The words behind the step, in order.
    units : Out(VectorPort).array(3)
        The vector units; only with `shared`.
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

    def elaborate(self, platform: Any) -> Module:
        """Connect lanes, memories and vector units; the task says which of them works."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self, p.vector, p.lanes)
        # Factors run ahead of their vectors; what must be kept for the update goes to the store.
        m.submodules.factors = factors = FactorStage(parameters=p)
        m.submodules.store = store = UpdateStore(parameters=p)
        connect_streams(m, self.coefficients, factors.coefficients)
        base = Signal(data.ArrayLayout(p.cache_format.width, p.columns), reset_less=True)
        divided = self._divided(m, base)

        m.submodules.banks = banks = CacheBanks(parameters=p)
        now = tasks(m, self, banks.loaded, store.walks, units[0].o_vec_valid)
        # A factor may be there long before its vector: they meet only when both are.
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
        # The same lanes serve columns, corrections and updates, a task at a time.
        words = self._banks(m, now, store, banks)
        scalars = [self._scalars(m, index, store) for index in range(p.lanes)]
        lanes = self._lanes(m, now, units, store, base, words, banks, scalars)
        parts = self._columns(m, now, units, words)
        self._base(m, now, base, lanes[0], parts)
        slopes = [slope for slope, _, _ in scalars]
        self._vector_units(m, now, units, store, parts, slopes, divided)

        output = self.outputs
        # The query and the maximum stand at the stream until nothing reads them any more.
        m.d.comb += self.steps.ready.eq(now.on("OUTPUT") & units[0].o_vec_valid)
        # The output leaves out of registers, while the caches are stored.
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
        """Read the columns by task; return the lanes' words."""
        p = self.parameters
        connect_streams(m, self.caches, banks.caches)
        connect_streams(m, banks.updated, self.updated)
        # A word is read as late as its update comes: two multiplications behind the element.
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
        """Return the adders, which add corrections up, join the sums, and update the columns."""
        p = self.parameters
        delay = p.product_latency
        lanes = [CacheLane(parameters=p) for _ in range(p.lanes)]
        # Products of corrections and of updates come out of the same multipliers.
        corrections = delay_line(m, now.transfer, delay - 1, name="corrections", reset=True)[-1]
        joined, both = store.factors, p.vector.multiply_stages + delay
        updates = delay_line(m, store.shown, both, name="updates", reset=True)
        written = delay_line(m, updates[-1], p.cache_stages, name="written", reset=True)[-1]
        # The word goes back where it was read, as many cycles later as it was worked on.
        at = delay_line(m, store.group, both + p.cache_stages, name="written_group")[-1]
        # The sums start from 0 while the columns pass: nothing else has to clear them.
        zeros = now.on("COLUMNS") | now.on("WAIT")
        sums = Mux(zeros, Augend.NOTHING, Augend.RESULT)
        added = Signal(p.word_layout)
        m.d.comb += Value.cast(added).eq(Value.cast(base))
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            # What waits beside the vector unit's multipliers: a factor, or an update's scalars.
            waits, factor = delay - 1, joined.lanes[index].factor
            factor = delay_line(m, factor, waits, name=f"factor_{index}")[-1]
            there = delay_line(m, joined.present[index], waits, name=f"there_{index}")[-1]
            product = (corrections & there) | updates[-2]
            # All is chosen a cycle before the operands are there.
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
            # The last group may have fewer columns than lanes: the others must not be written.
            holds = index + p.lanes * (p.groups - 1) < p.columns
            m.d.comb += [
                banks.write[index].eq(written & (Const(int(holds)) | (at != p.groups - 1))),
                m.submodules.banks.written[index].eq(Value.cast(lane.result)),
            ]
        m.d.comb += banks.write_group.eq(at)
        self._combine(m, now, lanes, added)
        return lanes

    def _combine(self, m: Module, now: Tasks, lanes: list[Any], added: Any) -> None:
        """Join the lanes' sums and those interleaved in them, in an order that never varies."""
        p = self.parameters
        combine, first, second = now.on("COMBINE"), now.rotation == 0, now.rotation == 1
        later = (now.rotation >= 3) & (now.rotation <= p.cache_stages + 1) & (now.slot == 0)
        # Lanes 0 and 1, lane 2 and the caches' part; then both; then one sum after the other.
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
        """Return a lane's slope, an element times alpha; later that and the one times beta.

        These come a cycle before the product that they are added beside.
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
        # B and C wait as long as the column of A takes in the vector unit, but for a cycle.
        held = delay_line(m, Cat(results), p.product_latency - 1, name=f"scalars_{index}")[-1]
        return results[0], held[:16], held[16:]

    def _columns(self, m: Module, now: Tasks, units: list[Any], words: list[Value]) -> _Parts:
        """Return the caches' part of numerator and denominator, a group of columns a cycle."""
        p = self.parameters
        size = p.vector.head_size
        reads = now.on("COLUMNS") & (now.place < p.groups)
        shown = delay_line(m, Cat(reads, now.place), 2, name="column", reset=True)[-1]
        results, narrowed = [], []
        # Columns are rounded to FP16 before the vector units see them; the caches stay as they are.
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
        # A group's number travels with it: parts come back while later columns are read.
        latency = p.sum_latency + p.factor_stages
        ended = delay_line(m, shown, latency, name="part", reset=True)[-1]
        return _Parts(shown[0], narrowed, ended[0], ended[1:], results)

    def _base(self, m: Module, now: Tasks, base: Any, lane: Any, parts: _Parts) -> None:
        """Keep the caches' part; later the sum that is joined next, and at last the whole."""
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
            # Each column's part has a place of its own until the sums are joined.
            with m.If(parts.ends & (parts.group == column // p.lanes)):
                m.d.sync += base[column].eq(wide[column % p.lanes])
        taken = combine & ((takes & (now.slot == now.rotation - 1)) | ends)
        with m.If(delay_line(m, taken, 1, name="taken", reset=True)[-1]):
            m.d.sync += Value.cast(base).eq(Value.cast(lane.result))

    def _divided(self, m: Module, base: Any) -> _Divided:
        """Return the numerator in FP16, and the denominator's reciprocal some cycles later."""
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
        # Rounded, and a cycle later multiplied or looked up.
        rounded = delay_line(m, Cat(codes), 1, name="rounded")[-1]
        m.submodules.reciprocal = reciprocal = TakagiReciprocal(stages=p.reciprocal_stages)
        denominator = Signal(FP16)
        m.d.comb += [denominator.eq(rounded[-16:]), Value.cast(reciprocal.a).eq(denominator)]
        # Where a line is below exp's 0, sums of many weights may be: then the output means nothing.
        positive = ~denominator[-1] & denominator[:-1].any() & ~is_nan(denominator)
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
        """Give the vector units what the task multiplies, out of registers."""
        p = self.parameters
        # The task chooses the operands alone: never do two of them want a unit in one cycle.
        scaled = delay_line(m, store.shown, p.vector.multiply_stages, name="scaled", reset=True)[-1]
        # AC.4 is one more scaling: the first unit multiplies by the reciprocal.
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
