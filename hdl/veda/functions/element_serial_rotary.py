"""The rotary embedding of queries and keys, two elements in two cycles."""

from typing import Annotated, Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit
from hdl.veda.functions.operator_loan import (
    BINARY,
    EXTRA_BITS,
    LONGER_PRODUCT,
    from_fp16,
    loan,
    own,
)

LOAN = loan(add=BINARY, multiply=LONGER_PRODUCT, last_multiply=BINARY)
"""The operators of a rotary embedding."""


@parameter_object
class ElementSerialRotaryParameters(Parameters):
    """Register stages of an element-serial rotary embedding; the defaults reach 1 GHz in 45 nm.

    Parameters
    ----------
    multiply_stages : int
        Register stages of the multipliers.
    add_stages : int
        Register stages of the adder.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2
    add_stages: Annotated[int, Range(1, 4, "stages")] = 2

    @property
    def ranks(self) -> int:
        """Register ranks from the operands to the result."""
        return self.multiply_stages + self.add_stages

    @property
    def pair_layout(self) -> data.StructLayout:
        """Two elements that turn together, and their angle, FP16."""
        fp16 = BINARY16.layout
        return data.StructLayout({"x": fp16, "y": fp16, "cosine": fp16, "sine": fp16, "last": 1})

    @property
    def rotated_layout(self) -> data.StructLayout:
        """The two elements turned, FP16."""
        return data.StructLayout({"x": BINARY16.layout, "y": BINARY16.layout, "last": 1})


class ElementSerialRotary(Unit):
    """``x * cosine - y * sine`` and ``x * sine + y * cosine`` of pairs of FP16 elements.

    Two multipliers and one adder make one of the two elements a cycle.

    **Latency** ``ranks + 1`` cycles from the first cycle in which a pair is offered. **Throughput**
    one element a cycle: a pair is taken in the second cycle of its two.

    **Numerics** both products and their sum are rounded to FP16, to nearest, ties to even,
    subnormals included. The error of x is at most ``2**-10 * (abs(x * cosine) + abs(y * sine)) +
    2**-23``, that of y likewise. Special values by IEEE 754.

    Parameters
    ----------
    parameters : ElementSerialRotaryParameters
        Register ranks.
    borrows : bool
        Whether the operators are lent.

    Members
    -------
    pairs : In(stream)
        `x`, `y`, `cosine`, `sine` in FP16, and `last`, which is passed on.
    rotated : Out(stream)
        `x`, `y` in FP16, `last`.
    loan : Out(LOAN)
        The operators; only with `borrows`. No pair begins unless they are granted.

    Raises
    ------
    ValueError
        By `ElementSerialRotaryParameters`.
    """

    def __init__(self, *, parameters: ElementSerialRotaryParameters, borrows: bool = False) -> None:
        self.parameters = parameters
        self.borrows = borrows
        super().__init__(
            {
                "pairs": In(stream.Signature(parameters.pair_layout)),
                "rotated": Out(stream.Signature(parameters.rotated_layout)),
            }
            | ({"loan": Out(LOAN)} if borrows else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Make x in a pair's first cycle and y in its second; everything waits together."""
        m = Module()
        p = self.parameters
        pair, output = self.pairs.payload, self.rotated
        if self.borrows:
            lent = self.loan
        else:
            lent = own(
                m,
                LOAN,
                add=FloatAdd(stages=p.add_stages, enable=True),
                multiply=FloatMultiply(
                    extra_bits=EXTRA_BITS, stages=p.multiply_stages, enable=True
                ),
                last_multiply=FloatMultiply(stages=p.multiply_stages, enable=True),
            )
        move, second = Signal(), Signal()
        begins = self.pairs.valid & lent.granted
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            self.pairs.ready.eq(second & move),
        ]
        with m.If(begins & move):
            m.d.sync += second.eq(~second)

        add, left, right = lent.add, lent.multiply, lent.last_multiply
        first_x, is_y, is_last = Signal(BINARY16.layout, reset_less=True), Signal(), Signal()
        # Whether it is an element, whether y, and whether the last.
        there, kinds = Signal(p.ranks), [Signal(p.ranks, reset_less=True) for _ in range(2)]
        with m.If(move):
            m.d.sync += [
                there.eq(Cat(begins, there)),
                kinds[0].eq(Cat(second, kinds[0])),
                kinds[1].eq(Cat(pair.last, kinds[1])),
                first_x.eq(add.result),
            ]
        m.d.comb += [
            lent.wants.eq(self.pairs.valid),
            lent.ends.eq(self.pairs.valid & self.pairs.ready & pair.last),
            lent.busy.eq(there.any()),
            lent.enable.eq(move),
            left.a.eq(pair.x),
            Value.cast(left.b).eq(from_fp16(Mux(second, pair.sine, pair.cosine))),
            right.a.eq(pair.y),
            right.b.eq(Mux(second, pair.cosine, pair.sine)),
            add.a.eq(left.result),
            add.b.eq(right.result),
            add.b.sign.eq(right.result.sign ^ ~kinds[0][p.multiply_stages - 1]),
            is_y.eq(kinds[0][-1]),
            is_last.eq(kinds[1][-1]),
            output.valid.eq(there[-1] & is_y),
            output.payload.x.eq(first_x),
            output.payload.y.eq(add.result),
            output.payload.last.eq(is_last),
        ]
        return m
