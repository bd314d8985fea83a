"""LAD's special function module (SFM): norms, rotary embedding and SiLU (Section IV-B (6))."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.lad.fp16 import FP16
from hdl.lad.sfm.norm_scalars import NormScalars
from hdl.lad.sfm.pass_sequencer import Pass, PassSequencer, among
from hdl.lad.sfm.row_scale import RowScale
from hdl.lad.sfm.sfm_parameters import Function, SpecialFunctionModuleParameters
from hdl.lad.sfm.vector_adders import VectorAdders
from hdl.lad.sfm.vector_path import VectorPath
from hdl.lad.vpu.vector_processing_unit import Operation, VectorInterface, VectorPort
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.memory.memory import Memory
from hdl.unit import Unit

SUMMED = (Pass.SUM, Pass.SQUARES)
"""Passes of dot products, which `NormScalars` adds up."""

ADDED = (Pass.CENTRE, Pass.BIAS)
"""Passes whose results are output by the adders."""

MULTIPLIED = (Pass.WEIGHT, Pass.SCALE, Pass.SUM, Pass.NORMALISE)
"""Passes whose slices enter the vector unit when the memory outputs them."""


class SpecialFunctionModule(Unit):
    """Compute what a decoder layer needs in addition to linear layers and attention.

    A row is stored in a memory. Each pass reads the row's slices, processes them in the vector unit
    or the adders, and writes them back. Before a norm, the row is scaled by the power of two that
    brings its largest element to between 1 and 2; then neither the squares nor their sum can
    overflow. Single vectors take a path of their own, in which they overlap.

    **Latency** each pass takes one cycle per slice, a pass of `PACED` ``add_stages + 1``, plus the
    latency of its operators. RMSNorm has six passes, LayerNorm ten. **Throughput** one row at a
    time; single vectors of one function as in `VectorPath`. A row waits for all single vectors
    before it, a single vector for the row before it.

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
        m.submodules.path = path = VectorPath(parameters=p)
        m.submodules.adders = adders = VectorAdders(parameters=p)
        # Users of the vector unit and the adders: single vectors, or the row.
        own = VectorPort(p.vector).create(path=("row_unit",))
        for name in ("load", "i_vec1", "valid", "operation", "i_vec2", "i_scal"):
            by_path, by_row = (Value.cast(getattr(user, name)) for user in (path.unit, own))
            m.d.comb += Value.cast(getattr(unit, name)).eq(Mux(path.busy, by_path, by_row))
        m.d.comb += [
            path.unit.o_vec.eq(unit.o_vec),
            path.sums.eq(adders.sums),
            path.summed.eq(adders.added & path.busy),
            own.o_vec.eq(unit.o_vec),
            own.o_vec_valid.eq(unit.o_vec_valid & ~path.busy),
            own.o_scal.eq(unit.o_scal),
            own.o_scal_valid.eq(unit.o_scal_valid),
        ]
        m.d.comb += self.busy.eq(path.busy | self._pass_rows(m, own, path, adders))
        return m

    def _pass_rows(
        self, m: Module, unit: VectorInterface, path: VectorPath, adders: VectorAdders
    ) -> Value:
        """Run the passes over rows, share the ports; return whether a row is in progress."""
        p = self.parameters
        m.submodules.rows = rows = Memory(depth=max(p.slices, 2), width=16 * p.vector.head_size)
        m.submodules.sequencer = sequencer = PassSequencer(parameters=p)
        m.submodules.row_scale = row_scale = RowScale(parameters=p)
        m.submodules.scalars = scalars = NormScalars(parameters=p)
        now, item = sequencer.now, Signal(p.vector.vector_layout)
        loading, offered = now == Pass.LOAD, self.vectors.payload
        rowed = among(offered.function, Function.LAYER_NORM, Function.RMS_NORM)
        row = ~loading | (sequencer.done != 0)
        # Epsilon of the first slice applies to the whole row.
        epsilon = Signal(FP16, reset_less=True)
        with m.If(loading):
            m.d.sync += epsilon.eq(offered.epsilon)

        begins = loading & rowed & ~path.busy
        arrives = begins & self.vectors.valid
        by_adders, by_scalars = among(now, *ADDED), among(now, *SUMMED)
        result = Mux(by_adders, Value.cast(adders.sums), Value.cast(unit.o_vec))
        biased = sequencer.shown & (now == Pass.BIAS)
        m.d.comb += [
            Value.cast(item).eq(rows.read_data),
            self.results.payload.values.eq(
                Mux(path.busy, Value.cast(path.results.payload.values), Value.cast(item))
            ),
            self.results.valid.eq(sequencer.valid | path.results.valid),
            path.results.ready.eq(self.results.ready),
            path.vectors.payload.eq(offered),
            path.vectors.valid.eq(self.vectors.valid & ~rowed & ~row),
            self.vectors.ready.eq(Mux(rowed, begins, path.vectors.ready & ~row)),
            path.factors.payload.eq(self.factors.payload),
            path.factors.valid.eq(self.factors.valid),
            self.factors.ready.eq((sequencer.read & (now == Pass.WEIGHT)) | path.factors.ready),
            path.addends.payload.eq(self.addends.payload),
            path.addends.valid.eq(self.addends.valid),
            # The pass with biases is paced, so that each bias is transferred before the next is
            # needed.
            self.addends.ready.eq(biased | path.addends.ready),
            sequencer.function.eq(offered.function),
            sequencer.factor.eq(self.factors.valid),
            sequencer.addend.eq(self.addends.valid),
            sequencer.computed.eq(scalars.done),
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
            rows.write_enable.eq(sequencer.retire & ~by_scalars),
            rows.write_data.eq(Mux(arrives, Value.cast(offered.values), result)),
            row_scale.valid.eq(arrives),
            row_scale.first.eq(sequencer.done == 0),
            row_scale.values.eq(offered.values),
            scalars.clear.eq(loading),
            scalars.term.eq(unit.o_scal),
            scalars.term_valid.eq(unit.o_scal_valid),
            scalars.begin_mean.eq(now == Pass.MEAN),
            scalars.begin_deviation.eq(now == Pass.DEVIATION),
            scalars.scale.eq(row_scale.scale),
            scalars.epsilon.eq(epsilon),
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

        # Centring adds the negated mean.
        negated = Cat(scalars.mean[:-1], ~scalars.mean[-1])
        addend = Mux(
            now == Pass.CENTRE,
            negated.replicate(p.vector.head_size),
            Value.cast(self.addends.payload.values),
        )
        m.d.comb += [
            adders.valid.eq(path.added | (sequencer.shown & by_adders)),
            Value.cast(adders.a).eq(Mux(path.busy, Value.cast(path.a), Value.cast(item))),
            Value.cast(adders.b).eq(Mux(path.busy, Value.cast(path.b), addend)),
        ]
        return row
