"""LAD's special function module (SFM): norms, rotary embedding and SiLU (Section IV-B (6))."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.lad.fp16 import FP16
from hdl.lad.sfm.norm_scalars import NormScalars
from hdl.lad.sfm.pass_sequencer import WEIGHTED, Pass, PassSequencer, among
from hdl.lad.sfm.row_scale import RowScale
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.sfm.sigmoid_lanes import SigmoidLanes
from hdl.lad.sfm.vector_adders import VectorAdders
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.memory.memory import Memory
from hdl.unit import Unit

SUMMED = (Pass.SUM, Pass.SQUARES)
"""Passes of dot products, which `NormScalars` adds up."""

ADDED = (Pass.CENTRE, Pass.BIAS, Pass.SINE)
"""Passes whose results are output by the adders."""

MULTIPLIED = (*WEIGHTED, Pass.SCALE, Pass.SUM, Pass.NORMALISE, Pass.GATE)
"""Passes whose slices enter the vector unit when the memory outputs them."""


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
        Weights of a norm, slice by slice; a slice of cosines, then of sines, each with two equal
        halves; or the output of `up_proj`.
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
        """Connect the parts; each pass selects the operands of the vector unit and the adders."""
        m = Module()
        p = self.parameters
        (unit,) = vector_units(m, self.units if self.shared else None, p.vector, 1)
        m.submodules.rows = rows = Memory(depth=max(p.slices, 2), width=16 * p.vector.head_size)
        m.submodules.sequencer = sequencer = PassSequencer(parameters=p)
        m.submodules.row_scale = row_scale = RowScale(parameters=p)
        m.submodules.scalars = scalars = NormScalars(parameters=p)
        m.submodules.sigmoid = sigmoid = SigmoidLanes(parameters=p)
        m.submodules.adders = adders = VectorAdders(parameters=p)
        now, item = sequencer.now, Signal(p.vector.vector_layout)
        loading = now == Pass.LOAD
        # Epsilon of the first slice applies to the whole row.
        epsilon = Signal(FP16, reset_less=True)
        with m.If(loading):
            m.d.sync += epsilon.eq(self.vectors.payload.epsilon)

        arrives = loading & self.vectors.valid
        by_adders, by_scalars = among(now, *ADDED), among(now, *SUMMED)
        result = Mux(by_adders, Value.cast(adders.sums), Value.cast(unit.o_vec))
        m.d.comb += [
            Value.cast(item).eq(rows.read_data),
            self.results.payload.values.eq(item),
            self.results.valid.eq(sequencer.valid),
            self.vectors.ready.eq(loading),
            self.busy.eq(~loading | (sequencer.done != 0)),
            self.factors.ready.eq(sequencer.read & among(now, *WEIGHTED)),
            # The pass with biases is paced, so that each bias is transferred before the next is
            # needed.
            self.addends.ready.eq(sequencer.shown & (now == Pass.BIAS)),
            sequencer.function.eq(self.vectors.payload.function),
            sequencer.factor.eq(self.factors.valid),
            sequencer.addend.eq(self.addends.valid),
            sequencer.computed.eq(scalars.done | sigmoid.done),
            sequencer.ready.eq(self.results.ready),
            sequencer.retire.eq(
                arrives
                | (adders.added & by_adders)
                | (scalars.added & by_scalars)
                | (unit.o_vec_valid & ~by_adders)
            ),
            rows.read_enable.eq(sequencer.read),
            rows.read_address.eq(sequencer.place),
            rows.write_address.eq(sequencer.done),
            rows.write_enable.eq(sequencer.retire & ~by_scalars & (now != Pass.COSINE)),
            rows.write_data.eq(Mux(arrives, Value.cast(self.vectors.payload.values), result)),
            row_scale.valid.eq(arrives),
            row_scale.first.eq(sequencer.done == 0),
            row_scale.values.eq(self.vectors.payload.values),
            scalars.clear.eq(loading),
            scalars.term.eq(unit.o_scal),
            scalars.term_valid.eq(unit.o_scal_valid),
            scalars.begin_mean.eq(now == Pass.MEAN),
            scalars.begin_deviation.eq(now == Pass.DEVIATION),
            scalars.scale.eq(row_scale.scale),
            scalars.epsilon.eq(epsilon),
            sigmoid.values.eq(item),
            sigmoid.begin.eq((now == Pass.SIGMOID) & sequencer.shown),
        ]

        # The register row of the vector unit is loaded one cycle before the operation.
        m.d.comb += [
            unit.valid.eq(sequencer.shown & among(now, *MULTIPLIED)),
            unit.load.eq(sequencer.read),
            unit.operation.eq(Operation.ELEMENT_WISE),
            unit.i_scal.eq(scalars.deviation),
            unit.i_vec1.eq(self.factors.payload.values),
            unit.i_vec2.eq(item),
        ]
        with m.Switch(now):
            with m.Case(Pass.SCALE):
                m.d.comb += [
                    unit.operation.eq(Operation.SCALE),
                    # Scaling by a power of two is exact, and no later square can overflow.
                    unit.i_scal.eq(row_scale.scale),
                ]
            with m.Case(Pass.NORMALISE):
                m.d.comb += unit.operation.eq(Operation.SCALE)
            with m.Case(Pass.SUM):
                m.d.comb += unit.operation.eq(Operation.DOT_PRODUCT)
                m.d.comb += [one.eq(BINARY16.one) for one in unit.i_vec1]
            with m.Case(Pass.SQUARES):
                m.d.comb += [
                    # The slice itself is loaded when the memory outputs it.
                    unit.load.eq(sequencer.shown),
                    unit.valid.eq(sequencer.held),
                    unit.operation.eq(Operation.DOT_PRODUCT),
                    unit.i_vec1.eq(item),
                ]
            with m.Case(Pass.SINE):
                m.d.comb += Value.cast(unit.i_vec2).eq(rotated(item))
            with m.Case(Pass.GATE):
                m.d.comb += unit.i_vec1.eq(sigmoid.sigmoids)

        # A rotation is two products and a sum: the product with cos is held until the other is
        # ready.
        first_product = Signal(p.vector.vector_layout, reset_less=True)
        with m.If((now == Pass.COSINE) & unit.o_vec_valid):
            m.d.sync += first_product.eq(unit.o_vec)
        m.d.comb += [
            adders.valid.eq(sequencer.shown & among(now, Pass.CENTRE, Pass.BIAS)),
            adders.a.eq(item),
            adders.b.eq(self.addends.payload.values),
        ]
        with m.Switch(now):
            with m.Case(Pass.CENTRE):
                # Centring adds the negated mean.
                negated = Cat(scalars.mean[:-1], ~scalars.mean[-1])
                m.d.comb += [one.eq(negated) for one in adders.b]
            with m.Case(Pass.SINE):
                m.d.comb += [
                    adders.valid.eq(unit.o_vec_valid),
                    adders.a.eq(first_product),
                    adders.b.eq(unit.o_vec),
                ]
        return m


def rotated(vector: data.View) -> Value:
    """Return a vector with its halves exchanged, the first half then negated: wires only."""
    codes = [Value.cast(code) for code in vector]
    half = len(codes) // 2
    return Cat(*(Cat(code[:-1], ~code[-1]) for code in codes[half:]), *codes[:half])
