"""LAD's special function module (SFM): norms, rotary embedding and SiLU (Section IV-B (6))."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.lad.fp16 import FP16
from hdl.lad.sfm.norm_scalars import NormScalars
from hdl.lad.sfm.sfm_parameters import Function, SpecialFunctionModuleParameters
from hdl.lad.sfm.sigmoid_lanes import SigmoidLanes
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.memory.memory import Memory
from hdl.unit import Unit

PACED = ("SUM", "SQUARES", "BIAS")
"""Passes that issue one slice per `pace` cycles, the latency of an adder."""

WEIGHTED = ("WEIGHT", "COSINE", "SINE")
"""Passes that multiply each slice by a vector of `factors`."""

SUMMED = ("SUM", "SQUARES")
"""Passes of dot products, which `NormScalars` adds up."""

ADDED = ("CENTRE", "BIAS", "SINE")
"""Passes whose results are output by the adders."""


@dataclass(frozen=True)
class _Pass:
    """The current pass.

    Members
    -------
    on : Callable[[str], Value]
        Return whether the pass of that name is active.
    place, done : Signal
        Index of the slice to read next, and of the slice whose result is due next.
    issue : Signal
        A slice is read from the memory in this cycle.
    shown, held : Value
        The slice was read one cycle ago and is at the memory's output; or it was read two cycles
        ago.
    epsilon : Signal
        Epsilon of the row, in FP16.
    """

    on: Callable[[str], Value]
    place: Signal
    done: Signal
    issue: Signal
    shown: Value
    held: Value
    epsilon: Signal

    def any(self, names: Sequence[str]) -> Value:
        """Return whether one of several passes is active."""
        return Cat(self.on(name) for name in names).any()


class SpecialFunctionModule(Unit):
    """Compute what a decoder layer needs in addition to linear layers and attention.

    A row is stored in a memory. Each pass reads the row's slices, processes them in the vector unit
    or the adders, and writes them back. Before a norm, the row is scaled by the power of two that
    brings its largest element to between 1 and 2; then neither the squares nor their sum can
    overflow.

    **Latency** each pass takes one cycle per slice, a pass of `PACED` ``add_stages + 1``, plus the
    latency of its operators. RMSNorm has six passes, LayerNorm ten; rotary embedding and SiLU have
    four and five over one slice. **Throughput** one row or vector at a time.

    **Numerics** FP16, each step rounded to nearest, ties to even; 1 / sqrt(v) is that of
    `FloatReciprocalSqrt`, the sigmoid's reciprocal that of `TakagiReciprocal`. The page lists the
    error bounds. LAD, Section IV-B (6).

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Vector size, `hidden_size`, lanes and register stages.
    shared : bool
        Use a vector unit outside the module, through `units`.

    Members
    -------
    vectors : In(stream)
        `values` of a vector or of the next slice of a row; `function` and `epsilon`, which are the
        same for all slices of a row.
    factors : In(stream)
        Weights of a norm, slice by slice; cosines, then sines; or the output of `up_proj`.
    addends : In(stream)
        Biases of a LayerNorm, slice by slice; or the vector to add.
    results : Out(stream)
        Vectors, or the slices of a row, in order.
    busy : Out(1)
        A row or vector is being processed, or its results are being output.
    units : Out(VectorPort).array(1)
        Port of the vector unit; only with `shared`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `SpecialFunctionModuleParameters`.
    """

    def __init__(
        self, *, parameters: SpecialFunctionModuleParameters, shared: bool = False
    ) -> None:
        self.parameters = parameters
        self.shared = shared
        values = stream.Signature(parameters.values_layout)
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.vector_layout)),
                "factors": In(values),
                "addends": In(values),
                "results": Out(values),
                "busy": Out(1),
            }
            | unit_members(parameters.vector, 1, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Connect memory, vector unit, adders and scalars; the pass selects their operands."""
        m = Module()
        p = self.parameters
        (port,) = vector_units(m, self, p.vector, 1)
        m.submodules.rows = rows = Memory(depth=max(p.slices, 2), width=16 * p.vector.head_size)
        m.submodules.scalars = scalars = NormScalars(parameters=p)
        m.submodules.sigmoid = sigmoid = SigmoidLanes(parameters=p)

        retire = Signal()
        now = self._passes(m, retire, scalars.done | sigmoid.done)
        item = Signal(p.vector.vector_layout)
        scale = self._scale(m, now)
        # A rotation is two products and a sum: the product with cos is held until the other is
        # ready.
        first_product = Signal(p.vector.vector_layout, reset_less=True)
        with m.If(now.on("COSINE") & port.o_vec_valid):
            m.d.sync += first_product.eq(port.o_vec)
        # Scaling by a power of two is exact, and no later square can overflow.
        scalar = Mux(now.on("SCALE"), scale, scalars.deviation)
        self._vector_unit(m, port, now, item, sigmoid.sigmoids, scalar)
        sums, summed = self._adders(m, port, now, item, first_product, scalars.mean)

        arrives = now.on("LOAD") & self.vectors.valid
        by_adders, by_scalars = now.any(ADDED), now.any(SUMMED)
        result = Mux(by_adders, Value.cast(sums), Value.cast(port.o_vec))
        m.d.comb += [
            Value.cast(item).eq(rows.read_data),
            self.results.payload.values.eq(item),
            self.vectors.ready.eq(now.on("LOAD")),
            self.busy.eq(~now.on("LOAD") | (now.done != 0)),
            self.factors.ready.eq(now.issue & now.any(WEIGHTED)),
            # The pass with biases is paced, so that each bias is transferred before the next is
            # needed.
            self.addends.ready.eq(now.shown & now.on("BIAS")),
            retire.eq(
                arrives
                | (summed & by_adders)
                | (scalars.added & by_scalars)
                | (port.o_vec_valid & ~by_adders)
            ),
            rows.read_enable.eq(now.issue),
            rows.read_address.eq(now.place),
            rows.write_address.eq(now.done),
            rows.write_enable.eq(retire & ~by_scalars & ~now.on("COSINE")),
            rows.write_data.eq(Mux(arrives, Value.cast(self.vectors.payload.values), result)),
            scalars.clear.eq(now.on("LOAD")),
            scalars.term.eq(port.o_scal),
            scalars.term_valid.eq(port.o_scal_valid),
            scalars.begin_mean.eq(now.on("MEAN")),
            scalars.begin_deviation.eq(now.on("DEVIATION")),
            scalars.scale.eq(scale),
            scalars.epsilon.eq(now.epsilon),
            sigmoid.values.eq(item),
            sigmoid.begin.eq(now.on("SIGMOID") & now.shown),
        ]
        return m

    def _passes(self, m: Module, retire: Value, computed: Value) -> _Pass:
        """Sequence the passes; read the slices of each."""
        p = self.parameters
        offered = self.vectors.payload
        # Function and epsilon of the first slice apply to the whole row.
        function = Signal(Function, reset_less=True)
        epsilon = Signal(FP16, reset_less=True)
        place, done = (Signal(range(p.slices + 1), name=name) for name in ("place", "done"))
        ends, issue, rest = Signal(), Signal(), Signal(range(p.pace))
        with m.FSM(name="passes") as fsm:
            for name, successors in self._successors(function).items():
                with m.State(name), m.If(ends):
                    for condition, following in successors:
                        with m.If(condition):
                            m.next = following
        on = fsm.ongoing
        with m.If(on("LOAD")):
            m.d.sync += [function.eq(offered.function), epsilon.eq(offered.epsilon)]

        # While a row arrives, the function is that of the stream; later it is the registered one.
        latest = Mux(on("LOAD"), Value.cast(offered.function), Value.cast(function))
        count = Mux(latest <= Function.RMS_NORM.value, p.slices, 1)
        shown = delay_line(m, issue, 2, name="shown", reset=True)
        now = _Pass(on, place, done, issue, shown[1], shown[2], epsilon)
        more = place != count
        taken = self.results.valid & self.results.ready
        needs = (~now.any(WEIGHTED) | self.factors.valid) & (~on("BIAS") | self.addends.valid)
        waits = now.any(("LOAD", "MEAN", "DEVIATION"))
        # A slice is read only when its other operand is available: nothing after the memory can
        # stall.
        room = Mux(on("OUT"), ~self.results.valid | self.results.ready, needs)
        m.d.comb += [
            issue.eq(more & (rest == 0) & room & ~waits),
            ends.eq((retire & (done == count - 1)) | computed | (on("OUT") & taken & ~more)),
        ]
        m.d.sync += rest.eq(Mux(rest == 0, 0, rest - 1))
        with m.If(issue):
            m.d.sync += [place.eq(place + 1), rest.eq(Mux(now.any(PACED), p.pace - 1, 0))]
        with m.If(retire):
            m.d.sync += done.eq(done + 1)
        with m.If(ends):
            # Every pass begins at the first slice of the row.
            m.d.sync += [place.eq(0), done.eq(0), rest.eq(0)]
        # The memory's output is the payload of `results`, and is constant until the next read.
        with m.If(on("OUT") & (issue | self.results.ready)):
            m.d.sync += self.results.valid.eq(issue)
        return now

    def _successors(self, function: Any) -> dict[str, list[tuple[Value, str]]]:
        """Return the successors of each pass; the last condition that is true decides."""
        offered = self.vectors.payload.function
        always = Const(1, 1)
        layer_norm = function == Function.LAYER_NORM
        return {
            "LOAD": [
                (always, "SCALE"),
                (offered == Function.ROTARY, "COSINE"),
                (offered == Function.SILU, "SIGMOID"),
                # A residual addition alone is the last pass of a LayerNorm.
                (offered == Function.ADD, "BIAS"),
            ],
            "SCALE": [(always, "SQUARES"), (layer_norm, "SUM")],
            "SUM": [(always, "MEAN")],
            "MEAN": [(always, "CENTRE")],
            "CENTRE": [(always, "SQUARES")],
            "SQUARES": [(always, "DEVIATION")],
            "DEVIATION": [(always, "NORMALISE")],
            "NORMALISE": [(always, "WEIGHT")],
            "WEIGHT": [(always, "OUT"), (layer_norm, "BIAS")],
            "BIAS": [(always, "OUT")],
            "COSINE": [(always, "SINE")],
            "SINE": [(always, "OUT")],
            "SIGMOID": [(always, "GATE")],
            "GATE": [(always, "WEIGHT")],
            "OUT": [(always, "LOAD")],
        }

    def _scale(self, m: Module, now: _Pass) -> Value:
        """Return the power of two that brings the row's largest element to between 1 and 2."""
        exponents = [value[10:15] for value in self.vectors.payload.values]
        # The maximum takes two cycles: within groups, then over groups and previous slices.
        groups = [_largest(exponents[start : start + 16]) for start in range(0, len(exponents), 16)]
        arrives = now.on("LOAD") & self.vectors.valid
        held = delay_line(m, Cat(groups), 1, name="groups")[-1]
        behind = delay_line(m, Cat(arrives, now.done == 0), 1, name="arrived", reset=True)[-1]
        largest = Signal(5, reset_less=True)
        before = Mux(behind[1], 0, largest)
        with m.If(behind[0]):
            parts = [held[start : start + 5] for start in range(0, len(held), 5)]
            m.d.sync += largest.eq(_largest([*parts, before]))
        # 30 - 0 and 30 - 1 alike: subnormal numbers have the exponent of the smallest normal one.
        exponent = (BINARY16.exponent_mask - 1 - Mux(largest == 0, 1, largest))[:5]
        smallest = largest >= BINARY16.exponent_mask - 1
        return Mux(smallest, 1 << BINARY16.mantissa_bits - 1, exponent << BINARY16.mantissa_bits)

    def _vector_unit(
        self, m: Module, port: Any, now: _Pass, item: Any, sigmoids: Any, scalar: Value
    ) -> None:
        """Drive the vector unit with the slices of a pass; the row is loaded one cycle earlier."""
        # The rotated vector has its halves exchanged and one of them negated: wires only.
        half = self.parameters.vector.head_size // 2
        squares, scaled = now.on("SQUARES"), now.any(("SCALE", "NORMALISE"))
        operation = Mux(scaled, Operation.SCALE, Operation.ELEMENT_WISE)
        works = now.any((*WEIGHTED, "GATE", "SCALE", "NORMALISE", "SUM"))
        m.d.comb += [
            port.valid.eq((now.shown & works) | (now.held & squares)),
            Value.cast(port.operation).eq(Mux(now.any(SUMMED), Operation.DOT_PRODUCT, operation)),
            port.i_scal.eq(scalar),
            # For squares, the slice itself is loaded into the row when the memory outputs it.
            port.load.eq(Mux(squares, now.shown, now.issue)),
        ]
        for lane, loaded in enumerate(port.i_vec1):
            other = item[(lane + half) % (2 * half)]
            turned = Cat(other[:-1], other[-1] ^ int(lane < half))
            m.d.comb += [
                port.i_vec2[lane].eq(Mux(now.on("SINE"), turned, item[lane])),
                loaded.eq(self.factors.payload.values[lane]),
            ]
            with m.If(squares):
                m.d.comb += loaded.eq(item[lane])
            with m.If(now.on("SUM")):
                m.d.comb += loaded.eq(BINARY16.one)
            with m.If(now.on("GATE")):
                m.d.comb += loaded.eq(sigmoids[lane])

    def _adders(
        self, m: Module, port: Any, now: _Pass, item: Any, first_product: Any, mean: Value
    ) -> tuple[Any, Value]:
        """Return sums and their valid bit: of a slice, or of both products of a rotation."""
        p = self.parameters
        sums = Signal(p.vector.vector_layout)
        sine, centre = now.on("SINE"), now.on("CENTRE")
        # Centring adds the negated mean, in the adders of residual additions.
        negated = Cat(mean[:-1], ~mean[-1])
        for lane in range(p.vector.head_size):
            m.submodules[f"add_{lane}"] = add = FloatAdd(stages=p.add_stages)
            addend = Mux(centre, negated, self.addends.payload.values[lane])
            # The pass selects the operands of all lanes; a register separates selection and
            # addition.
            terms = Cat(
                Mux(sine, first_product[lane], item[lane]), Mux(sine, port.o_vec[lane], addend)
            )
            held = delay_line(m, terms, 1, name=f"terms_{lane}")[-1]
            m.d.comb += [
                Value.cast(add.a).eq(held[:16]),
                Value.cast(add.b).eq(held[16:]),
                sums[lane].eq(Value.cast(add.result)),
            ]
        begins = Mux(sine, port.o_vec_valid, now.shown & now.any(("CENTRE", "BIAS")))
        summed = delay_line(m, begins, 1 + p.add_stages, name="summed", reset=True)[-1]
        return sums, summed


def _largest(codes: list[Value]) -> Value:
    """Return the largest of some unsigned values, compared in a tree."""
    while len(codes) > 1:
        pairs = zip(codes[::2], codes[1::2], strict=False)
        codes = [Mux(a > b, a, b) for a, b in pairs] + codes[len(codes) // 2 * 2 :]
    return codes[0]
