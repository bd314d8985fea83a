"""Difference between the coefficients of two intervals' lines."""

from amaranth.hdl import Array, Cat, Const, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class LineDifference(Unit):
    """Look up two coefficients and subtract them, rounded once: the paper's alpha or beta.

    Two lookups and a subtractor are smaller than a table of all pairs of intervals.

    **Latency** ``1 + stages`` cycles. **Throughput** one difference per cycle. **Numerics** FP16.
    LAD, Section IV-B (4).

    Parameters
    ----------
    codes : tuple[int, ...]
        FP16 codes of the slopes a or the intercepts b of all intervals.
    stages : int
        Register stages of the subtraction.

    Members
    -------
    enable : In(1)
        The registers load.
    interval, mode : In(4)
        The interval whose coefficient is the minuend, and the one whose is the subtrahend. Numbers
        beyond the table select the last interval.
    result : Out(16)
        The difference in FP16.
    """

    def __init__(self, *, codes: tuple[int, ...], stages: int) -> None:
        self.codes = codes
        self.stages = stages
        members = {"enable": In(1), "interval": In(MODE_BITS), "mode": In(MODE_BITS)}
        super().__init__(members | {"result": Out(FP16)})

    def elaborate(self, platform: object) -> Module:
        """Look up both coefficients; subtract them one cycle later."""
        m = Module()
        line = Array(Const(code, FP16) for code in self.codes)
        m.submodules.subtract = subtract = FloatAdd(
            subtractor=True, stages=self.stages, enable=True
        )
        entries = Cat(line[self.interval], line[self.mode])
        looked_up = delay_line(m, entries, 1, name="entries", enable=self.enable)[-1]
        m.d.comb += [
            Value.cast(subtract.a).eq(looked_up[:16]),
            Value.cast(subtract.b).eq(looked_up[16:]),
            subtract.subtract.eq(1),
            subtract.enable.eq(self.enable),
            self.result.eq(Value.cast(subtract.result)),
        ]
        return m
