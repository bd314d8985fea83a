"""Scalar part of a norm: the sum over a row, its mean, and the reciprocal deviation."""

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_sqrt import FloatReciprocalSqrt
from hdl.lad.fp16 import FP16
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.unit import Unit


@dataclass(frozen=True)
class _Registers:
    """Operands of the multiplier, root and adder, constant during a step, and the adder's mode."""

    total: Signal
    first: Signal
    second: Signal
    product: Signal
    square: Signal
    floor: Signal
    rooting: Signal


class NormScalars(Unit):
    """Add the dot products of a row's slices, and compute the mean or deviation from the sum.

    One multiplier, one adder and one reciprocal root perform the steps sequentially.

    **Latency** ``multiply_stages + 1`` cycles to a mean, ``3 * multiply_stages + add_stages +
    root_stages + 5`` cycles to a deviation. **Throughput** one term per ``add_stages + 1`` cycles.

    **Numerics** FP16, each step rounded: ``mean = total * (1 / hidden_size)``, ``deviation = 1 /
    sqrt(mean + epsilon * scale * scale)``.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Width of a row and register stages.

    Members
    -------
    clear : In(1)
        Set the sum to 0.
    term, term_valid : In(16), In(1)
        A dot product to add, in FP16, and its valid bit.
    added : Out(1)
        A term has been added to the sum.
    begin_mean, begin_deviation : In(1)
        Compute the result from the complete sum. With `begin_mean` the sum becomes 0.
    scale, epsilon : In(16)
        Factor by which the row was scaled, and the epsilon of the norm, both in FP16.
    mean, deviation : Out(16)
        Results in FP16, constant until the next result of the same kind.
    done : Out(1)
        The requested result is valid from the next cycle on.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = parameters
        codes = ("term", "scale", "epsilon")
        strobes = ("clear", "term_valid", "begin_mean", "begin_deviation")
        super().__init__(
            {name: In(FP16) for name in codes}
            | {name: In(1) for name in strobes}
            | {name: Out(FP16) for name in ("mean", "deviation")}
            | {name: Out(1) for name in ("added", "done")}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the operators and the sum; the FSM of `_steps` sequences them."""
        m = Module()
        p = self.parameters
        stages = p.vector.multiply_stages
        m.submodules.multiply = multiply = FloatMultiply(stages=stages)
        m.submodules.add = add = FloatAdd(stages=p.add_stages)
        m.submodules.root = root = FloatReciprocalSqrt(stages=p.root_stages)
        total, product = Signal(FP16, reset_less=True), Signal(FP16, reset_less=True)
        square, floor = Signal(FP16, reset_less=True), Signal(FP16, reset_less=True)
        first, second = Signal(FP16, reset_less=True), Signal(FP16, reset_less=True)
        summed = delay_line(m, self.term_valid, p.add_stages, name="summed", reset=True)[-1]
        # One adder for two uses: it adds epsilon in one step, and terms to the sum otherwise.
        rooting = Signal()
        m.d.comb += [
            Value.cast(multiply.a).eq(first),
            Value.cast(multiply.b).eq(second),
            Value.cast(add.a).eq(Mux(rooting, product, total)),
            Value.cast(add.b).eq(Mux(rooting, floor, self.term)),
            Value.cast(root.a).eq(square),
            self.added.eq(summed),
        ]
        with m.If(self.clear | self.begin_mean):
            m.d.sync += total.eq(0)
        with m.Elif(summed):
            m.d.sync += total.eq(Value.cast(add.result))
        registers = _Registers(total, first, second, product, square, floor, rooting)
        results = [Value.cast(operator.result) for operator in (multiply, add, root)]
        self._steps(m, registers, results)
        return m

    def _steps(self, m: Module, registers: "_Registers", results: list[Value]) -> None:
        """Sequence one multiplier, adder and root; a row needs each of them a few times only."""
        p, r = self.parameters, registers
        stages = p.vector.multiply_stages
        multiplied, added, rooted = results
        left = Signal(range(max(stages, p.add_stages, p.root_stages) + 1))
        ends = left == 0
        m.d.sync += left.eq(Mux(ends, 0, left - 1))

        def begin(cycles: int, state: str) -> None:
            m.d.sync += left.eq(cycles)
            m.next = state

        # `hidden_size` is a constant: division by it is a multiplication.
        inverse = Const(p.reciprocal_size, FP16)
        with m.FSM(name="steps"):
            # Terms are added until a result is requested.
            with m.State("SUM"):
                with m.If(self.begin_mean):
                    m.d.sync += [r.first.eq(r.total), r.second.eq(inverse)]
                    begin(stages, "MEAN")
                with m.Elif(self.begin_deviation):
                    m.d.sync += [r.first.eq(self.epsilon), r.second.eq(self.scale)]
                    begin(stages, "SCALED")
            with m.State("MEAN"), m.If(ends):
                m.d.sync += self.mean.eq(multiplied)
                m.d.comb += self.done.eq(1)
                m.next = "SUM"
            # Epsilon is multiplied by the scale twice, as are the squares to which it is added.
            with m.State("SCALED"), m.If(ends):
                m.d.sync += r.first.eq(multiplied)
                begin(stages, "SQUARED")
            with m.State("SQUARED"), m.If(ends):
                m.d.sync += [r.floor.eq(multiplied), r.first.eq(r.total), r.second.eq(inverse)]
                begin(stages, "DIVIDED")
            with m.State("DIVIDED"), m.If(ends):
                m.d.sync += r.product.eq(multiplied)
                begin(p.add_stages, "RAISED")
            # The sum is not needed any more: the adder is free to add epsilon.
            with m.State("RAISED"):
                m.d.comb += r.rooting.eq(1)
                with m.If(ends):
                    m.d.sync += r.square.eq(added)
                    begin(p.root_stages, "ROOT")
            # 1 / sqrt(mean square + epsilon).
            with m.State("ROOT"), m.If(ends):
                m.d.sync += self.deviation.eq(rooted)
                m.d.comb += self.done.eq(1)
                m.next = "SUM"
