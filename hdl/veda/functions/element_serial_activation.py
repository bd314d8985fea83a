"""The SwiGLU activation of a feed-forward layer, one element per cycle: SiLU(gate) * up."""

from typing import Annotated

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_divide import FloatDivide, SerialFloatDivide
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit
from hdl.veda.functions.shared_operator import (
    BINARY,
    EXTRA_BITS,
    LONGER_PRODUCT,
    QUOTIENT,
    UNARY,
    SharedOperators,
    from_fp16,
    private_operators,
    shared_operators,
)

OPERATORS = shared_operators(
    exp=UNARY, add=BINARY, multiply=LONGER_PRODUCT, divide=QUOTIENT, last_multiply=BINARY
)
"""Operators that an activation uses."""


@parameter_object
class ElementSerialActivationParameters(Parameters):
    """Pipeline stages of an element-serial activation.

    `docs/veda/functions/element_serial_activation.md` lists the clock that the defaults reach.

    Parameters
    ----------
    exp_stages : int
        Register stages of the exponential unit.
    step_stages : int
        Register stages of the adder and the multiplier between exponential and division.
    divide_digits : int
        Quotient digits per cycle of a serial divider; 0 selects a pipelined divider with one
        quotient per cycle.
    divide_stages : int
        Register stages of the pipelined divider.
    multiply_stages : int
        Register stages of the last multiplier.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    exp_stages: Annotated[int, Range(2, 7, "stages")] = 5
    step_stages: Annotated[int, Range(1, 4, "stages")] = 2
    divide_digits: Annotated[int, Range(0, 13, "digits")] = 0
    divide_stages: Annotated[int, Range(1, 16, "stages")] = 10
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def stages(self) -> int:
        """Pipeline stages from the operands to the result."""
        divide = 2 if self.divide_digits else self.divide_stages
        return self.exp_stages + self.step_stages + divide + self.multiply_stages

    @property
    def interval(self) -> int:
        """Cycles from one element to the next."""
        return SerialFloatDivide.cycles(self.divide_digits) if self.divide_digits else 1

    @property
    def divider(self) -> Unit:
        """A divider with these parameters; its divisor 1 + e is from 1 to 2, or a NaN."""
        if self.divide_digits:
            return SerialFloatDivide(digits=self.divide_digits, divisor_from_one=True)
        return FloatDivide(stages=self.divide_stages, divisor_from_one=True, enable=True)

    @property
    def operands_layout(self) -> data.StructLayout:
        """An element of the outputs of `gate_proj` and `up_proj`, FP16."""
        fp16 = BINARY16.layout
        return data.StructLayout({"gate": fp16, "up": fp16, "last": 1})

    @property
    def element_layout(self) -> data.StructLayout:
        """A result, FP16."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})


class ElementSerialActivation(Unit):
    """Compute ``gate / (1 + exp(-gate)) * up`` of FP16 elements, one per cycle.

    Only ``e = exp(-abs(gate))`` is computed, which is at most 1: a negative gate is multiplied by e
    before it is divided by ``1 + e``.

    **Latency** `stages` cycles (of the parameters) with a pipelined divider. **Throughput** one
    element in `interval` cycles: 1, or the time of the serial divider.

    **Numerics** every operator rounds to FP16: e as `FloatExp`, the other four to nearest, ties to
    even, subnormals included. The error relative to the exact result q is at most ``2**-8 * abs(q)
    + 2**-24 * (1 + abs(up) * (1 + abs(gate)))``, as long as q is below 65504.

    **Special values** follow IEEE 754: infinity above 65504; a NaN, or a gate of -inf, gives the
    quiet NaN.

    Parameters
    ----------
    parameters : ElementSerialActivationParameters
        Pipeline stages.
    shared : bool
        Use operators outside the unit, which other functions share; adds `operators`.

    Members
    -------
    operands : In(stream)
        `gate` and `up` in FP16, and `last`, which is passed through.
    activated : Out(stream)
        `value` in FP16, `last`.
    operators : Out(OPERATORS)
        With `shared`: the operators. No element is accepted unless they are granted.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `ElementSerialActivationParameters`.
    """

    def __init__(
        self, *, parameters: ElementSerialActivationParameters, shared: bool = False
    ) -> None:
        self.parameters = parameters
        self.shared = shared
        super().__init__(
            {
                "operands": In(stream.Signature(parameters.operands_layout)),
                "activated": Out(stream.Signature(parameters.element_layout)),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Chain the operators; the whole pipeline stalls together."""
        m = Module()
        p = self.parameters
        operands, output = self.operands.payload, self.activated
        operators = self.operators if self.shared else self._private_operators(m)
        exp, add, damp, divide = operators.exp, operators.add, operators.multiply, operators.divide
        multiply = operators.last_multiply
        move, takes = Signal(), Signal()
        valid = Signal(p.stages)
        # The first stage of a serial divider; a pipelined divider is never busy.
        dividing = valid[p.exp_stages + p.step_stages]
        m.d.comb += [
            move.eq((~output.valid | output.ready) & ~(dividing & divide.busy)),
            self.operands.ready.eq(move & operators.grant),
            takes.eq(self.operands.valid & self.operands.ready),
            output.valid.eq(valid[-1]),
        ]
        # The last stage can be emptied while the others wait for a quotient.
        with m.If(output.ready):
            m.d.sync += valid[-1].eq(0)
        with m.If(move):
            m.d.sync += valid.eq(Cat(takes, valid))

        # Values for later operators wait in memories, which cost less than a register per stage.
        # Each memory holds what is in the pipeline upstream of its reader.
        gate = self._wait(
            m, "gates", Value.cast(operands.gate), takes, valid[p.exp_stages - 1] & move
        )
        ups = Cat(Value.cast(operands.up), operands.last)
        up = self._wait(m, "ups", ups, takes, valid[-1 - p.multiply_stages] & move)
        # The mark is read together with its element, which the last multiplier still delays.
        last = delay_line(m, up[16], p.multiply_stages, name="last", enable=move)[-1]

        # SiLU is gate / (1 + exp(-gate)). With e = exp(-abs(gate)), which cannot overflow, that is
        # gate / (1 + e) above zero and gate * e / (1 + e) below: `damp` multiplies by e or by one.
        one = Const(BINARY16.one, 16)
        m.d.comb += [
            operators.request.eq(self.operands.valid),
            operators.end.eq(takes & operands.last),
            operators.busy.eq(valid.any()),
            operators.enable.eq(move),
            exp.valid.eq(self.operands.valid & operators.grant),
            add.valid.eq(valid[p.exp_stages - 1]),
            damp.valid.eq(valid[p.exp_stages - 1]),
            divide.valid.eq(valid[p.exp_stages + p.step_stages - 1]),
            multiply.valid.eq(valid[-1 - p.multiply_stages]),
            exp.a.eq(operands.gate),
            Value.cast(add.a).eq(one),
            add.b.eq(exp.result),
            Value.cast(damp.a).eq(gate),
            Value.cast(damp.b).eq(from_fp16(Mux(gate[-1], Value.cast(exp.result), one))),
            divide.a.eq(damp.result),
            divide.b.eq(add.result),
            multiply.a.eq(divide.result),
            Value.cast(multiply.b).eq(up[:16]),
            output.payload.value.eq(multiply.result),
            output.payload.last.eq(last),
        ]
        return m

    def _private_operators(self, m: Module) -> SharedOperators:
        """Return operators of the unit's own."""
        p = self.parameters
        return private_operators(
            m,
            OPERATORS,
            exp=FloatExp(domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True),
            add=FloatAdd(stages=p.step_stages, enable=True),
            multiply=FloatMultiply(extra_bits=EXTRA_BITS, stages=p.step_stages, enable=True),
            divide=p.divider,
            last_multiply=FloatMultiply(stages=p.multiply_stages, enable=True),
        )

    def _wait(self, m: Module, name: str, value: Value, comes: Value, leaves: Value) -> Value:
        """Delay a value in a FIFO until it is used; the writer guarantees that there is room."""
        depth = 1 << self.parameters.stages.bit_length()
        fifo = MemoryFifo(shape=len(value), depth=depth)
        m.submodules[name] = fifo
        m.d.comb += [
            fifo.source.valid.eq(comes),
            fifo.source.payload.eq(value),
            fifo.sink.ready.eq(leaves),
        ]
        return fifo.sink.payload
