"""P3-LLM's processing element: a dot product of four at low precision (Section V-C, Figure 6 c)."""

from typing import Annotated

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.p3llm.pim.dot_product import PE_LANES, SUM, DotProduct
from hdl.p3llm.pim.operand_decoder import SHIFT, SIGNIFICAND, Mode, WeightDecoder
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit


@parameter_object
class PimProcessingElementParameters(Parameters):
    """Number of inputs of a processing element.

    Parameters
    ----------
    pumps : int
        Inputs that share a column, one per cycle; a PE has twice as many accumulators.
    """

    pumps: Annotated[int, Range(1, 8, "inputs a column")] = 2


class PimProcessingElement(Unit):
    """The paper's PE: decode four 4-bit codes, multiply them by four inputs, accumulate.

    The PEs of a compute unit share the inputs, which are therefore decoded outside. The codes are
    the element's part of a DRAM column and are held for `pumps` cycles, one for each input.

    **Latency** 3 cycles from the last operands to `finished`. **Throughput** four multiply-adds per
    cycle. **Numerics** exact: a sum is an integer in units of ``2**-10``, ``2**-9`` or ``2**-18``
    by mode, without the scales. It cannot overflow for 128 inputs in E4M3, nor for any number of
    probabilities whose sum is 1.

    Parameters
    ----------
    parameters : PimProcessingElementParameters
        Number of inputs that share a column.

    Members
    -------
    mode : In(Mode)
        Formats of codes and inputs.
    codes : In(ArrayLayout)
        One code per lane.
    group_bits : In(ArrayLayout)
        For each lane, the select of the group's special value or the token's zero point.
    significands : In(ArrayLayout)
        Inputs from `InputDecoder`; all 0 in an idle cycle.
    shifts : In(ArrayLayout)
        Shifts of the inputs, one cycle after their significands.
    first, last : In(1)
        The products start a sum; they complete it, and it moves to the finished sums. Valid one
        cycle after the shifts.
    advance : In(1)
        Shift the finished sums by one, as the first has been read; not in the same cycle as `last`.
    finished : Out(signed(32))
        The first finished sum; those of the first input precede those of the second.

    Raises
    ------
    ValueError
        If `PimProcessingElementParameters` rejects a value.
    """

    def __init__(self, *, parameters: PimProcessingElementParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "mode": In(Mode),
                "codes": In(data.ArrayLayout(4, PE_LANES)),
                "group_bits": In(data.ArrayLayout(4, PE_LANES)),
                "significands": In(data.ArrayLayout(SIGNIFICAND, PE_LANES)),
                "shifts": In(data.ArrayLayout(SHIFT, PE_LANES)),
                "first": In(1),
                "last": In(1),
                "advance": In(1),
                "finished": Out(SUM),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect one decoder to each lane of the dot product."""
        m = Module()
        # Inputs arrive decoded, as all elements share them; each element decodes its own codes.
        m.submodules.dot_product = dot_product = DotProduct(pumps=self.parameters.pumps)
        for lane in range(PE_LANES):
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
