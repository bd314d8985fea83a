"""Sums of dot products that are longer than VEDA's array is wide.

The paper's array multiplies a slice of a long vector at a time; behind the tree one adder joins the
slices.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_normal_add import FloatNormalAdd
from hdl.arith.float_widening_multiply import holds_products
from hdl.memory.memory import Memory
from hdl.parameters import require_power_of_two
from hdl.unit import Unit
from hdl.veda.array.processing_element import chosen, require_element


class InnerProductAccumulator(Unit):
    """Add a sum to the one that came as many sums ago as there are dot products under way.

    A dot product's first slice enters as it is; what is not its last slice waits in a memory, the
    oldest first, for the slice that follows. Whoever offers a slice has made sure that the slice
    before it is `add_stages` + 2 cycles ago at least, and that no more than `partial_sums` wait.

    **Latency** `add_stages` cycles from `slice_sum` to `total`. **Throughput** one slice a cycle.
    **Numerics** one rounding a slice after the first, to nearest, ties to even; the order of the
    slices is the order of the additions.

    Parameters
    ----------
    sum_format : FloatFormat
        As in `ProcessingElement`.
    add_stages : int
        Pipeline stages of the adder, 2 to 4.
    partial_sums : int
        Words of the memory: a power of two, 2 to 1024.

    Members
    -------
    valid, first, last : In(1)
        A slice comes in the next cycle, and which.
    slice_sum : In(sum_format)
        The slice announced in the cycle before.
    done : Out(1)
        `total` is a finished dot product.
    total : Out(sum_format)
        The sum so far.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(self, *, sum_format: FloatFormat, add_stages: int, partial_sums: int) -> None:
        require_element(sum_format, 2, add_stages)
        require_power_of_two("partial_sums", partial_sums, 2, 1024)
        self.sum_format = sum_format
        self.add_stages = add_stages
        self.partial_sums = partial_sums
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "slice_sum": In(sum_format.layout),
                "done": Out(1),
                "total": Out(sum_format.layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read a partial sum, add, and write it back or hand it over."""
        m = Module()
        m.submodules.waiting = waiting = Memory(
            depth=self.partial_sums, width=self.sum_format.width
        )
        adder_class = FloatNormalAdd if holds_products(BINARY16, self.sum_format) else FloatAdd
        # Without subnormal operands the adder is smaller, and sums of exact products have none.
        adder = adder_class(number_format=self.sum_format, stages=self.add_stages)
        m.submodules.adder = adder

        # A first slice meets -0, which changes no sum: it needs no path around the adder.
        returns = Signal()
        m.d.comb += [
            waiting.read_enable.eq(self.valid & ~self.first),
            adder.a.eq(self.slice_sum),
            adder.b.eq(chosen((returns, waiting.read_data))),
            self.total.eq(adder.result),
        ]
        m.d.sync += returns.eq(waiting.read_enable)
        # The partial sums come back in the order in which they left: the memory is a ring whose two
        # addresses only count. The sequencer knows how full it is.
        with m.If(waiting.read_enable):
            m.d.sync += waiting.read_address.eq(waiting.read_address + 1)

        ends = Cat(self.valid & ~self.last, self.valid & self.last)
        # A slice is announced a cycle before it comes, then takes the adder's stages.
        ends = delay_line(m, ends, self.add_stages + 1, name="ends", reset=True)[-1]
        m.d.comb += [
            waiting.write_enable.eq(ends[0]),
            waiting.write_data.eq(adder.result),
            self.done.eq(ends[1]),
        ]
        with m.If(waiting.write_enable):
            m.d.sync += waiting.write_address.eq(waiting.write_address + 1)
        return m
