"""Conversion of a 48-bit accumulator to a 16-bit activation: scale, shift, round, saturate.

It converts an integer array's exact sums to activations, with the scale of the output channel or
tensor (for Kelle's array, Section 5.1).
"""

from functools import partial

from amaranth.hdl import Cat, Const, Module, signed, unsigned
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import divided_product, multiply_add
from hdl.arith.operator import Operator, Pipeline
from hdl.arith.rounding import Rounding, round_up
from hdl.arith.saturating_add import saturate
from hdl.parameters import require_range

CUTS = 5
"""Places of pipeline registers outside the products."""


class Requantiser(Operator):
    """``a * scale / 2**shift``, rounded to nearest, ties to even, and clamped to 16 bits.

    **Latency** `stages` cycles. **Throughput** one value per cycle. **Numerics** nothing is rounded
    before the shift.

    Parameters
    ----------
    width : int
        Bits of the accumulator, 16 to 48.
    scale_width : int
        Bits of the scale, 1 to 16.
    stages : int
        Pipeline stages: after the two products, their sum, the shift, the clamp and the rounding.
        With 6 or more, the products have registers in their middle too; the scale then has at least
        2 bits.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(signed(width))
        The accumulator.
    scale : In(unsigned(scale_width))
        The scale factor.
    shift : In(range(width + scale_width))
        Exponent of the power of two to divide by.
    result : Out(signed(16))
        The activation.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, width: int = 48, scale_width: int = 16, stages: int = 5, enable: bool = False
    ) -> None:
        require_range("width", width, 16, 48)
        require_range("scale_width", scale_width, 2 if stages > CUTS else 1, 16)
        self.width = width
        self.scale_width = scale_width
        members = {
            "a": In(signed(width)),
            "scale": In(unsigned(scale_width)),
            "shift": In(range(width + scale_width)),
            "result": Out(signed(16)),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Multiply by halves, add, shift, clamp, round; cut after each."""
        m = Module()
        half = self.width // 2
        factors = ("low", self.a[:half]), ("high", self.a[half:].as_signed())
        enable = getattr(self, "enable", None)
        divided = int(self.stages > CUTS)
        product = partial(divided_product, enable=1 if enable is None else enable)
        product = product if divided else multiply_add
        low, high = (product(m, name, part, self.scale) for name, part in factors)
        shift = delay_line(m, self.shift, divided, name="shift", enable=enable)[-1]
        pipeline = Pipeline(m, stages=self.stages - divided, cuts=CUTS, enable=enable)
        low, high, shift = pipeline.cut(low, high, shift)
        product, shift = pipeline.cut(low + (high << half), shift)
        width = self.width + self.scale_width
        # One extra bit below is the rounding half; the bits below it only contribute to the sticky
        # bit.
        shifted = Cat(Const(0, 1), product).as_signed() >> shift
        dropped = product & ~(Const(-1, signed(width)) << shift) >> 1
        shifted, dropped = pipeline.cut(shifted, dropped)
        # Clamping to one bit more than the result before rounding does not change the final clamp.
        tie, floor = shifted[0], saturate(shifted[1:].as_signed(), signed(17))[0]
        tie, floor, sticky = pipeline.cut(tie, floor, dropped.any())
        up = round_up(Rounding.HALF_EVEN, floor[0], tie, sticky)
        (result,) = pipeline.cut(saturate(floor + up, signed(16))[0])
        m.d.comb += self.result.eq(result)
        return m
