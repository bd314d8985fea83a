"""The rotary embedding of queries and keys, one pair of elements in two cycles."""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit
from hdl.veda.functions.shared_operator import (
    BINARY,
    EXTRA_BITS,
    LONGER_PRODUCT,
    from_fp16,
    private_operators,
    shared_operators,
)

OPERATORS = shared_operators(add=BINARY, multiply=LONGER_PRODUCT, last_multiply=BINARY)
"""Operators that a rotary embedding uses."""


@parameter_object
class ElementSerialRotaryParameters(Parameters):
    """Pipeline stages of an element-serial rotary embedding.

    `docs/veda/functions/element_serial_rotary.md` lists the clock that the defaults reach.

    Parameters
    ----------
    multiply_stages : int
        Register stages of the multipliers.
    add_stages : int
        Register stages of the adder.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2
    add_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def stages(self) -> int:
        """Pipeline stages from the operands to the result."""
        return self.multiply_stages + self.add_stages

    @property
    def pair_layout(self) -> data.StructLayout:
        """Two elements that are rotated together, and their angle, FP16."""
        fp16 = BINARY16.layout
        return data.StructLayout({"x": fp16, "y": fp16, "cosine": fp16, "sine": fp16, "last": 1})

    @property
    def rotated_layout(self) -> data.StructLayout:
        """The two rotated elements, FP16."""
        return data.StructLayout({"x": BINARY16.layout, "y": BINARY16.layout, "last": 1})


class ElementSerialRotary(Unit):
    """Compute ``x * cosine - y * sine`` and ``x * sine + y * cosine`` of pairs of FP16 elements.

    Two multipliers and one adder compute one of the two elements per cycle.

    **Latency** ``stages + 1`` cycles from the first cycle that offers a pair. **Throughput** one
    element per cycle: a pair is accepted in the second of its two cycles.

    **Numerics** both products and their sum are rounded to FP16, to nearest, ties to even,
    subnormals included. The error of x is at most ``2**-10 * (abs(x * cosine) + abs(y * sine)) +
    2**-23``, and that of y likewise. Special values follow IEEE 754.

    Parameters
    ----------
    parameters : ElementSerialRotaryParameters
        Pipeline stages.
    shared : bool
        Use operators outside the unit, which other functions share; adds `operators`.

    Members
    -------
    pairs : In(stream)
        `x`, `y`, `cosine`, `sine` in FP16, and `last`, which is passed through.
    rotated : Out(stream)
        `x`, `y` in FP16, `last`.
    operators : Out(OPERATORS)
        With `shared`: the operators. No pair begins unless they are granted.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `ElementSerialRotaryParameters`.
    """

    def __init__(self, *, parameters: ElementSerialRotaryParameters, shared: bool = False) -> None:
        self.parameters = parameters
        self.shared = shared
        super().__init__(
            {
                "pairs": In(stream.Signature(parameters.pair_layout)),
                "rotated": Out(stream.Signature(parameters.rotated_layout)),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Compute x in a pair's first cycle and y in its second; the pipeline stalls together."""
        m = Module()
        p = self.parameters
        pair, output = self.pairs.payload, self.rotated
        if self.shared:
            operators = self.operators
        else:
            operators = private_operators(
                m,
                OPERATORS,
                add=FloatAdd(stages=p.add_stages, enable=True),
                multiply=FloatMultiply(
                    extra_bits=EXTRA_BITS, stages=p.multiply_stages, enable=True
                ),
                last_multiply=FloatMultiply(stages=p.multiply_stages, enable=True),
            )
        # The pair is held at the input for two cycles: x is computed in the first, y in the second.
        move, second = Signal(), Signal()
        begins = self.pairs.valid & operators.grant
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            self.pairs.ready.eq(second & move),
        ]
        with m.If(begins & move):
            m.d.sync += second.eq(~second)

        add, left, right = operators.add, operators.multiply, operators.last_multiply
        # The adder outputs x one cycle before y; a register aligns it with y.
        first_x, is_y, is_last = Signal(BINARY16.layout, reset_less=True), Signal(), Signal()
        # In parallel with the operators, per stage: occupied, element is y, pair is the last.
        valid, marks = Signal(p.stages), [Signal(p.stages, reset_less=True) for _ in range(2)]
        with m.If(move):
            m.d.sync += [
                valid.eq(Cat(begins, valid)),
                marks[0].eq(Cat(second, marks[0])),
                marks[1].eq(Cat(pair.last, marks[1])),
                first_x.eq(add.result),
            ]
        m.d.comb += [
            operators.request.eq(self.pairs.valid),
            operators.end.eq(self.pairs.valid & self.pairs.ready & pair.last),
            operators.busy.eq(valid.any()),
            operators.enable.eq(move),
            # Independent of `pairs.valid`, which is late: without a pair nothing uses the products.
            left.valid.eq(operators.grant),
            right.valid.eq(operators.grant),
            add.valid.eq(valid[p.multiply_stages - 1]),
            left.a.eq(pair.x),
            Value.cast(left.b).eq(from_fp16(Mux(second, pair.sine, pair.cosine))),
            right.a.eq(pair.y),
            right.b.eq(Mux(second, pair.cosine, pair.sine)),
            add.a.eq(left.result),
            add.b.eq(right.result),
            # x subtracts its second product: inverting one sign bit replaces a subtractor.
            add.b.sign.eq(right.result.sign ^ ~marks[0][p.multiply_stages - 1]),
            is_y.eq(marks[0][-1]),
            is_last.eq(marks[1][-1]),
            output.valid.eq(valid[-1] & is_y),
            output.payload.x.eq(first_x),
            output.payload.y.eq(add.result),
            output.payload.last.eq(is_last),
        ]
        return m
