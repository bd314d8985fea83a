"""The gated activation of a feed-forward layer, one element a cycle: SiLU(gate) * up."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_divide import FloatDivide
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.parameters import require_range
from hdl.stream.memory_fifo import MemoryFifo
from hdl.unit import Unit


@dataclass(frozen=True, kw_only=True)
class ElementSerialActivationParameters:
    """Register ranks of an element-serial activation; the defaults reach 1 GHz in 45 nm.

    Parameters
    ----------
    exp_stages : int
        Of the exponential unit, 2 to 7.
    step_stages : int
        Of the adder and the multiplier between exponential and division, 1 to 4.
    divide_stages : int
        Of the divider, 1 to 16.
    multiply_stages : int
        Of the last multiplier, 1 to 4.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    exp_stages: int = 5
    step_stages: int = 2
    divide_stages: int = 10
    multiply_stages: int = 2

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("exp_stages", self.exp_stages, 2, 7)
        require_range("step_stages", self.step_stages, 1, 4)
        require_range("divide_stages", self.divide_stages, 1, 16)
        require_range("multiply_stages", self.multiply_stages, 1, 4)

    @property
    def ranks(self) -> int:
        """Register ranks from the operands to the result."""
        before = self.exp_stages + self.step_stages + self.divide_stages
        return before + self.multiply_stages

    @property
    def operands_layout(self) -> data.StructLayout:
        """An element of both halves of the feed-forward layer, FP16."""
        fp16 = BINARY16.layout
        return data.StructLayout({"gate": fp16, "up": fp16, "last": 1})

    @property
    def element_layout(self) -> data.StructLayout:
        """A result, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})


class ElementSerialActivation(Unit):
    """``gate / (1 + exp(-gate)) * up`` of FP16 elements that come one a cycle.

    Only ``e = exp(-abs(gate))`` is needed, which is at most 1: a gate below zero is multiplied by e
    before it is divided by ``1 + e``.

    **Latency** `ranks` cycles (the parameters'). **Throughput** one element a cycle.

    **Numerics** every operator rounds to FP16: e by `FloatExp`, the other four to nearest, ties to
    even, subnormals included. To the exact result q the error is at most
    ``2**-8 * abs(q) + 2**-24 * (1 + abs(up) * (1 + abs(gate)))``, as long as q is below 65504.

    **Special values** by IEEE 754: beyond 65504 infinity; a NaN, or a gate of -inf, gives the quiet
    NaN.

    Parameters
    ----------
    parameters : ElementSerialActivationParameters
        Register ranks.

    Members
    -------
    operands : In(stream)
        `gate` and `up` in FP16, and `last`, which is passed on.
    activated : Out(stream)
        `value` in FP16, `last`.

    Raises
    ------
    ValueError
        By `ElementSerialActivationParameters`.
    """

    def __init__(self, *, parameters: ElementSerialActivationParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "operands": In(stream.Signature(parameters.operands_layout)),
                "activated": Out(stream.Signature(parameters.element_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Chain the operators; everything waits together."""
        m = Module()
        p = self.parameters
        operands, output = self.operands.payload, self.activated
        move = Signal()
        valid = Signal(p.ranks)
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            self.operands.ready.eq(move),
            output.valid.eq(valid[-1]),
        ]
        with m.If(move):
            m.d.sync += valid.eq(Cat(self.operands.valid, valid))

        m.submodules.exp = exp = FloatExp(
            domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True
        )
        m.submodules.add = add = FloatAdd(stages=p.step_stages, enable=True)
        m.submodules.damp = damp = FloatMultiply(stages=p.step_stages, enable=True)
        m.submodules.divide = divide = FloatDivide(stages=p.divide_stages, enable=True)
        m.submodules.multiply = multiply = FloatMultiply(stages=p.multiply_stages, enable=True)
        # What the operators behind need waits in memories; each holds what is on its way.
        gate = self._wait(m, "gates", Value.cast(operands.gate), valid[p.exp_stages - 1], move)
        ups = Cat(Value.cast(operands.up), operands.last)
        up = self._wait(m, "ups", ups, valid[-1 - p.multiply_stages], move)
        last = up[16]
        for rank in range(p.multiply_stages):
            later = Signal(name=f"last_{rank}", reset_less=True)
            with m.If(move):
                m.d.sync += later.eq(last)
            last = later

        one = Const(BINARY16.one, 16)
        m.d.comb += [
            *(unit.enable.eq(move) for unit in (exp, add, damp, divide, multiply)),
            exp.a.eq(operands.gate),
            Value.cast(add.a).eq(one),
            add.b.eq(exp.result),
            Value.cast(damp.a).eq(gate),
            Value.cast(damp.b).eq(Mux(gate[-1], Value.cast(exp.result), one)),
            divide.a.eq(damp.result),
            divide.b.eq(add.result),
            multiply.a.eq(divide.result),
            Value.cast(multiply.b).eq(up[:16]),
            output.payload.value.eq(multiply.result),
            output.payload.last.eq(last),
        ]
        return m

    def _wait(self, m: Module, name: str, value: Value, needed: Value, move: Value) -> Value:
        """Keep a value until it is needed."""
        depth = 1 << self.parameters.ranks.bit_length()
        fifo = MemoryFifo(shape=len(value), depth=depth)
        m.submodules[name] = fifo
        m.d.comb += [
            fifo.source.valid.eq(self.operands.valid & move),
            fifo.source.payload.eq(value),
            fifo.sink.ready.eq(needed & move),
        ]
        return fifo.sink.payload
