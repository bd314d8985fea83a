"""SiLU and GeLU by linear interpolation in one table."""

from enum import Enum
from functools import cache
from typing import Annotated

import mpmath
from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.fixed_point import FixedPoint
from hdl.arith.table_interpolation import TableInterpolation, exact_breakpoints
from hdl.parameters import Parameters, PowerOfTwo, parameter_object
from hdl.unit import Unit

VALUE = FixedPoint(integer_bits=6, fraction_bits=10)
"""Format of inputs and outputs."""

RANGE_BITS = 4
"""The tables end at 2**4, where both dips are below a thousandth of an output step."""

GUARD_BITS = 3
"""Fraction bits of the table that the output omits."""


class Function(Enum):
    """Function of a slice."""

    SILU = 0
    """x / (1 + e**-x)."""

    GELU = 1
    """x times the cumulative normal distribution at x."""


class Activation(Enum):
    """Activation function of a feed-forward layer; the first two are those of `Function`."""

    SILU = 0
    """x / (1 + e**-x)."""

    GELU = 1
    """x times the cumulative normal distribution at x."""

    RELU = 2
    """max(x, 0)."""


@parameter_object
class ActivationFunctionsParameters(Parameters):
    """Dimensions of the activation unit, shared with its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Values per slice.
    pieces : int
        Table entries per function.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "values")] = 32
    pieces: Annotated[int, PowerOfTwo(16, 1024, "entries")] = 256

    @property
    def offset_bits(self) -> int:
        """Bits of the offset in a segment."""
        return RANGE_BITS + VALUE.fraction_bits - (self.pieces.bit_length() - 1)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of values and its function."""
        values = data.ArrayLayout(VALUE.shape, self.lanes)
        return data.StructLayout({"values": values, "function": 1, "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of results."""
        return data.StructLayout({"values": data.ArrayLayout(VALUE.shape, self.lanes), "last": 1})


def silu_dip(x: float) -> float:
    """Return max(x, 0) minus SiLU at x, which equals that at -x; x must not be negative."""
    return x / (1 + mpmath.exp(x))


def gelu_dip(x: float) -> float:
    """Return max(x, 0) minus GeLU at x, which equals that at -x; x must not be negative."""
    return x * mpmath.erfc(x / mpmath.sqrt(2)) / 2


@cache
def dip_breakpoints(pieces: int) -> tuple[int, ...]:
    """Return both tables concatenated; every dip starts and ends at 0, so they share an entry."""
    scale = 1 << VALUE.fraction_bits + GUARD_BITS
    silu, gelu = (
        exact_breakpoints(dip, pieces=pieces, width=1 << RANGE_BITS, scale=scale)
        for dip in (silu_dip, gelu_dip)
    )
    return silu[:-1] + gelu


class ActivationFunctions(Unit):
    """SiLU or GeLU of slices of `lanes` values.

    Both functions equal max(x, 0) minus a dip. The dip depends only on the magnitude of x, is at
    most 0.28 and vanishes beyond 16. So one table of the dip serves both signs and needs few bits.

    **Latency** 4 cycles. **Throughput** one slice per cycle.

    **Numerics** input and output are Q6.10. The dip of |x| is interpolated in a table of `pieces`
    breakpoints over 0 to 16 with 13 fraction bits, and rounded once, half up; beyond 16 it is 0.
    With 256 pieces the error relative to the exact function is at most 0.9 steps of 2**-10 for SiLU
    and 1.0 for GeLU; with P pieces it grows as (256 / P)**2.

    Parameters
    ----------
    parameters : ActivationFunctionsParameters
        Number of lanes and size of the table.

    Members
    -------
    inputs : In(stream)
        `values` in Q6.10, `function` as in `Function`, and `last`, which is passed to the output.
    outputs : Out(stream)
        `values` in Q6.10, `last`.

    Raises
    ------
    ValueError
        If `ActivationFunctionsParameters` rejects a value.
    """

    def __init__(self, *, parameters: ActivationFunctionsParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "inputs": In(stream.Signature(parameters.slice_layout)),
                "outputs": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Instantiate one lane per value, with a common enable."""
        m = Module()
        p = self.parameters
        # One enable stalls all lanes together, so that lanes need no handshake.
        move = ~self.outputs.valid | self.outputs.ready
        m.d.comb += self.inputs.ready.eq(move)
        flags = Cat(self.inputs.valid, self.inputs.payload.last)
        flags = delay_line(m, flags, ActivationLane.STAGES, name="flags", enable=move, reset=True)[
            -1
        ]
        m.d.comb += [self.outputs.valid.eq(flags[0]), self.outputs.payload.last.eq(flags[1])]
        for i in range(p.lanes):
            m.submodules[f"lane_{i}"] = lane = ActivationLane(pieces=p.pieces)
            m.d.comb += [
                lane.enable.eq(move),
                lane.value.eq(self.inputs.payload.values[i]),
                lane.function.eq(self.inputs.payload.function),
                self.outputs.payload.values[i].eq(lane.result),
            ]
        return m


class ActivationLane(Unit):
    """One lane of `ActivationFunctions`.

    **Latency** 4 enabled cycles. **Throughput** one value per cycle. **Numerics** as in
    `ActivationFunctions`.

    Parameters
    ----------
    pieces : int
        Table entries per function.

    Members
    -------
    enable : In(1)
        The registers load only while it is 1.
    value, function : In
        x, and the function to compute.
    result : Out
        The value of the function.
    """

    STAGES = 4

    def __init__(self, *, pieces: int) -> None:
        self.pieces = pieces
        super().__init__(
            {
                "enable": In(1),
                "value": In(VALUE.shape),
                "function": In(1),
                "result": Out(VALUE.shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compute the magnitude, interpolate the dip, subtract it."""
        m = Module()
        table_bits = RANGE_BITS + VALUE.fraction_bits
        pieces_bits = self.pieces.bit_length() - 1
        m.submodules.dip = dip = TableInterpolation(
            breakpoints=dip_breakpoints(self.pieces),
            offset_bits=table_bits - pieces_bits,
            guard_bits=GUARD_BITS,
            stages=2,
            enable=True,
        )
        # First stage: the magnitude; the magnitude of -32 needs all bits.
        magnitude = Signal(VALUE.width, reset_less=True)
        function = Signal(reset_less=True)
        beyond = magnitude[table_bits:].any()
        # Beyond the table, use the first breakpoint, which is 0.
        place = Mux(beyond, 0, magnitude[:table_bits])
        m.d.comb += [dip.enable.eq(self.enable), dip.a.eq(Cat(place, function))]

        # max(x, 0) is delayed in parallel with the table.
        positive = Mux(self.value[-1], Const(0, VALUE.width), self.value.as_unsigned())
        positive = delay_line(
            m, positive[:-1], self.STAGES - 1, name="positive", enable=self.enable
        )[-1]
        with m.If(self.enable):
            m.d.sync += [
                magnitude.eq(Mux(self.value[-1], -self.value, self.value)),
                function.eq(self.function),
            ]
            m.d.sync += self.result.eq(positive - dip.result)
        return m
