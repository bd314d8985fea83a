"""The power of two by which a row is scaled before its norm is computed."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.lad.fp16 import FP16
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.unit import Unit

GROUP = 16
"""Elements that are compared in one cycle."""


class RowScale(Unit):
    """Find the scale that brings the row's largest element to between 1 and 2.

    **Latency** 2 cycles from the last slice. **Throughput** one slice per cycle. **Numerics** the
    scale is a power of two, so that scaling is exact; for rows of subnormal numbers it is that of
    the smallest normal number.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Vector size.

    Members
    -------
    valid, first, values : In
        A slice of the row in FP16; whether it is the first one.
    scale : Out(16)
        The scale in FP16.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "values": In(p.vector.vector_layout),
                "scale": Out(FP16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare exponents: within groups, then over groups and previous slices."""
        m = Module()
        exponents = [value[10:15] for value in self.values]
        groups = [
            largest(exponents[start : start + GROUP]) for start in range(0, len(exponents), GROUP)
        ]
        held = delay_line(m, Cat(groups), 1, name="groups")[-1]
        valid = delay_line(m, self.valid, 1, name="valid", reset=True)[-1]
        first = delay_line(m, self.first, 1, name="first", reset=True)[-1]
        found = Signal(5, reset_less=True)
        with m.If(valid):
            parts = [held[start : start + 5] for start in range(0, len(held), 5)]
            m.d.sync += found.eq(largest([*parts, Mux(first, 0, found)]))
        # 30 - 0 and 30 - 1 alike: subnormal numbers have the exponent of the smallest normal one.
        exponent = (BINARY16.exponent_mask - 1 - Mux(found == 0, 1, found))[:5]
        smallest = found >= BINARY16.exponent_mask - 1
        m.d.comb += self.scale.eq(
            Mux(
                smallest,
                1 << BINARY16.mantissa_bits - 1,
                exponent << BINARY16.mantissa_bits,
            )
        )
        return m


def largest(codes: list[Value]) -> Value:
    """Return the largest of some unsigned values, compared in a tree."""
    while len(codes) > 1:
        pairs = zip(codes[::2], codes[1::2], strict=False)
        codes = [Mux(a > b, a, b) for a, b in pairs] + codes[len(codes) // 2 * 2 :]
    return codes[0]
