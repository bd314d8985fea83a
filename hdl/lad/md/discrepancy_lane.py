"""One lane of the MD module: mode and coefficients of one active position per cycle."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.fp16 import FP16
from hdl.lad.md.line_difference import LineDifference
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_update import ModeUpdate
from hdl.unit import Unit


class DiscrepancyLane(Unit):
    """Find the interval of a score, update counters and mode, compute alpha, beta and _a.

    **Latency** `update_latency` cycles to the update, `coefficient_latency` to the coefficients.
    **Throughput** one position per cycle. **Numerics** those of `ModeDiscrepancyModule`.

    Parameters
    ----------
    parameters : ModeDiscrepancyModuleParameters
        Intervals and register stages.

    Members
    -------
    enable : In(1)
        The registers load.
    score, mark : In
        The score in FP16, and the state of its position.
    maximum : In(16)
        The maximum of the step's scores, one cycle after the score.
    update : Out(update_layout)
        The state of the position after the step.
    coefficient : Out(coefficient_layout)
        The actual interval's line less that of the mode, and what follows from it.
    """

    def __init__(self, *, parameters: ModeDiscrepancyModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "enable": In(1),
                "score": In(FP16),
                "mark": In(p.mark_layout),
                "maximum": In(FP16),
                "update": Out(p.update_layout),
                "coefficient": Out(p.coefficient_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Subtract the maximum, update the mode, then subtract the lines."""
        m = Module()
        p, move = self.parameters, self.enable
        score = delay_line(
            m, self.score, p.coefficient_latency - p.multiply_stages, name="score", enable=move
        )
        m.submodules.subtract = subtract = FloatAdd(
            subtractor=True, stages=p.add_stages, enable=True
        )
        m.submodules.update = update = ModeUpdate(parameters=p)
        mark = delay_line(m, self.mark, 1 + p.add_stages, name="mark", enable=move)[-1]
        m.d.comb += [
            Value.cast(subtract.a).eq(score[1]),
            Value.cast(subtract.b).eq(self.maximum),
            subtract.subtract.eq(1),
            subtract.enable.eq(move),
            update.enable.eq(move),
            update.difference.eq(Value.cast(subtract.result)),
            update.mark.eq(mark),
            self.update.eq(update.result),
        ]
        differences = {}
        for name, codes in (("alpha", p.table.a), ("beta", p.table.b)):
            m.submodules[name] = difference = LineDifference(codes=codes, stages=p.add_stages)
            m.d.comb += [
                difference.interval.eq(update.interval),
                difference.mode.eq(update.mode),
                difference.enable.eq(move),
            ]
            differences[name] = difference.result
        m.submodules.product = product = FloatMultiply(stages=p.multiply_stages, enable=True)
        # The product is computed last; the differences are delayed to match.
        held = delay_line(
            m, Cat(differences.values()), p.multiply_stages, name="differences", enable=move
        )[-1]
        changed = delay_line(
            m,
            update.result.update,
            p.coefficient_latency - p.update_latency,
            name="changed",
            enable=move,
        )
        m.d.comb += [
            product.enable.eq(move),
            Value.cast(product.a).eq(differences["alpha"]),
            Value.cast(product.b).eq(score[-1]),
            self.coefficient.alpha_score.eq(Value.cast(product.result)),
            self.coefficient.alpha.eq(held[:16]),
            self.coefficient.beta.eq(held[16:]),
            self.coefficient.update.eq(changed[-1]),
        ]
        return m
