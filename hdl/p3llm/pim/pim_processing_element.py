"""P3-LLM's processing element: a dot product of four at low precision (Section V-C, Figure 6 c)."""

from typing import Annotated, Any

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.p3llm.pim.dot_product import LANES, SUM, DotProduct
from hdl.p3llm.pim.operand_decoder import SHIFT, SIGNIFICAND, Mode, WeightDecoder
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit


@parameter_object
class PimProcessingElementParameters(Parameters):
    """Dimensions of a processing element.

    Parameters
    ----------
    pumps : int
        Inputs that meet one column, one a cycle; half as many as there are contexts.
    """

    pumps: Annotated[int, Range(1, 8, "inputs a column")] = 2


class PimProcessingElement(Unit):
    """Decode four 4-bit codes, multiply them by four inputs, and add to a sum of their context.

    Sixteen elements share the inputs, which are therefore decoded outside; the codes are the
    element's own part of a DRAM column and stand for as many cycles as there are pumps.

    **Latency** 3 cycles from the last operands to `finished`. **Throughput** four multiply-adds a
    cycle, for ever. **Numerics** exact: a sum is an integer which counts ``2**-10``, ``2**-9`` or
    ``2**-18`` by the mode, times the scales; it cannot overflow for 128 inputs in E4M3, nor for
    any number of probabilities that sum to 1.

    Parameters
    ----------
    parameters : PimProcessingElementParameters
        Dimensions.

    Members
    -------
    mode : In(Mode)
        What the codes are.
    codes : In(ArrayLayout)
        A code a lane.
    group_bits : In(ArrayLayout)
        For each lane the group's special value or the token's zero point.
    significands : In(ArrayLayout)
        Inputs by `InputDecoder`; all 0 in a cycle without work.
    shifts : In(ArrayLayout)
        Of the inputs, a cycle later.
    first, last : In(1)
        A cycle after the shifts: the products begin a sum; they complete it, and it goes to the
        finished ones.
    advance : In(1)
        The finished sum has been read, the next one comes; not with `last`.
    finished : Out(signed(32))
        A finished sum, of the first pump first.

    Raises
    ------
    ValueError
        By `PimProcessingElementParameters`.
    """

    def __init__(self, *, parameters: PimProcessingElementParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "mode": In(Mode),
                "codes": In(data.ArrayLayout(4, LANES)),
                "group_bits": In(data.ArrayLayout(4, LANES)),
                "significands": In(data.ArrayLayout(SIGNIFICAND, LANES)),
                "shifts": In(data.ArrayLayout(SHIFT, LANES)),
                "first": In(1),
                "last": In(1),
                "advance": In(1),
                "finished": Out(SUM),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Put a decoder before every lane of the dot product."""
        m = Module()
        # Inputs come decoded, as all elements of a unit share them; codes are each element's own.
        m.submodules.dot_product = dot_product = DotProduct(pumps=self.parameters.pumps)
        for lane in range(LANES):
            m.submodules[f"decoder_{lane}"] = decoder = WeightDecoder()
            m.d.comb += [
                decoder.mode.eq(self.mode),
                decoder.code.eq(self.codes[lane]),
                decoder.group_bits.eq(self.group_bits[lane]),
                dot_product.weights[lane].eq(decoder.result),
            ]
        m.d.comb += [
            dot_product.significands.eq(self.significands),
            dot_product.shifts.eq(self.shifts),
            dot_product.first.eq(self.first),
            dot_product.last.eq(self.last),
            dot_product.advance.eq(self.advance),
            self.finished.eq(dot_product.finished),
        ]
        return m
