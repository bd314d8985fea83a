"""Sigmoid of a vector, several elements per cycle."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import FloatExp
from hdl.arith.float_format import BINARY16
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.unit import Unit


class SigmoidLanes(Unit):
    """``1 / (1 + exp(-x))`` of each element of a vector, `lanes` elements per cycle.

    **Latency** ``head_size / lanes + sigmoid_stages + 1`` cycles. **Throughput** one vector per
    ``head_size / lanes`` cycles. **Numerics** `FloatExp`, `FloatAdd` and `TakagiReciprocal` in
    FP16; below -11.09 the exponential is infinite and the sigmoid 0.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Vector size, lanes and register stages.

    Members
    -------
    values : In(ArrayLayout(16, head_size))
        The vector in FP16, read at `begin`.
    begin : In(1)
        Start the computation.
    free : Out(1)
        The next vector can begin.
    sigmoids : Out(ArrayLayout(16, head_size))
        The results in FP16, in the cycle that is given by the latency.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = parameters
        vector = parameters.vector.vector_layout
        super().__init__(
            {"values": In(vector), "begin": In(1), "free": Out(1), "sigmoids": Out(vector)}
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the vector past the lanes, and shift the results in."""
        # Only the sigmoid needs an exponential, and few rows need a sigmoid: a few lanes suffice.
        m = Module()
        p = self.parameters
        width = p.lanes * BINARY16.width
        groups = p.vector.head_size // p.lanes
        # A shift register replaces a multiplexer at the input of the lanes.
        turning = Signal(p.vector.head_size * BINARY16.width, reset_less=True)
        group, moves = Signal(range(groups)), Signal()
        with m.If(self.begin):
            m.d.sync += [turning.eq(Value.cast(self.values)), moves.eq(1), group.eq(0)]
        with m.Elif(moves):
            m.d.sync += [turning.eq(turning >> width), group.eq(group + 1)]
            with m.If(group == groups - 1):
                m.d.sync += [moves.eq(0), group.eq(0)]

        results = []
        for lane in range(p.lanes):
            m.submodules[f"exp_{lane}"] = exp = FloatExp(stages=p.exp_stages)
            m.submodules[f"add_{lane}"] = add = FloatAdd(stages=p.add_stages)
            m.submodules[f"reciprocal_{lane}"] = reciprocal = TakagiReciprocal(
                stages=p.reciprocal_stages
            )
            x = turning.word_select(lane, BINARY16.width)
            m.d.comb += [
                Value.cast(exp.a).eq(Cat(x[:-1], ~x[-1])),
                add.a.eq(exp.result),
                Value.cast(add.b).eq(Const(BINARY16.one, BINARY16.width)),
                reciprocal.a.eq(add.result),
            ]
            results.append(Value.cast(reciprocal.result))

        # The next vector is loaded while the last group of this one enters the lanes.
        m.d.comb += self.free.eq(~moves | (group == groups - 1))
        moved = delay_line(m, moves, p.sigmoid_stages, name="moved", reset=True)[-1]
        with m.If(moved):
            held = Value.cast(self.sigmoids)
            m.d.sync += held.eq(Cat(held[width:], *results))
        return m
