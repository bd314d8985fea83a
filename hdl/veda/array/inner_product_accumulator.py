"""Accumulator of dot products that are longer than VEDA's array is wide.

The array multiplies one slice of a long vector per beat; one adder after the tree accumulates the
slices.
"""

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
    """Add the slices of dot products, several of which are interleaved.

    The first slice of a dot product passes unchanged. The sum after any slice but the last is
    written to a memory, which is read in order of age when the next slice arrives. The source
    guarantees that the slices of a dot product are at least `add_stages` + 2 cycles apart, and that
    the memory holds at most `partial_sums` sums.

    **Latency** `add_stages` cycles from `slice_sum` to `total`. **Throughput** one slice per cycle.
    **Numerics** one rounding for each slice after the first, to nearest, ties to even; slices are
    added in their order of arrival.

    Parameters
    ----------
    sum_format : FloatFormat
        Format of the sums, as in `ProcessingElement`.
    add_stages : int
        Pipeline stages of the adder, 2 to 4.
    partial_sums : int
        Words of the memory: a power of two, 2 to 1024.

    Members
    -------
    valid, first, last : In(1)
        A slice arrives in the next cycle; it is the first or the last of its dot product.
    slice_sum : In(sum_format)
        The slice announced in the previous cycle.
    done : Out(1)
        `total` is a complete dot product in this cycle.
    total : Out(sum_format)
        Sum of the slices so far.

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

    def elaborate(self, platform: object) -> Module:
        """Read a partial sum, add the slice, and write the sum back or output it."""
        m = Module()
        m.submodules.waiting = waiting = Memory(
            depth=self.partial_sums, width=self.sum_format.width
        )
        adder_class = FloatNormalAdd if holds_products(BINARY16, self.sum_format) else FloatAdd
        # Sums of exact products are never subnormal, so an adder without subnormal operands
        # suffices.
        adder = adder_class(number_format=self.sum_format, stages=self.add_stages)
        m.submodules.adder = adder

        # A first slice is added to -0, which changes no value: no bypass of the adder is needed.
        returns = Signal()
        m.d.comb += [
            waiting.read_enable.eq(self.valid & ~self.first),
            adder.a.eq(self.slice_sum),
            adder.b.eq(chosen((returns, waiting.read_data))),
            self.total.eq(adder.result),
        ]
        m.d.sync += returns.eq(waiting.read_enable)
        # Partial sums are read in the order in which they were written: the memory is a ring whose
        # two addresses only count. The sequencer tracks its fill level.
        with m.If(waiting.read_enable):
            m.d.sync += waiting.read_address.eq(waiting.read_address + 1)

        ends = Cat(self.valid & ~self.last, self.valid & self.last)
        # A slice is announced one cycle before it arrives; the adder's stages follow.
        ends = delay_line(m, ends, self.add_stages + 1, name="ends", reset=True)[-1]
        m.d.comb += [
            waiting.write_enable.eq(ends[0]),
            waiting.write_data.eq(adder.result),
            self.done.eq(ends[1]),
        ]
        with m.If(waiting.write_enable):
            m.d.sync += waiting.write_address.eq(waiting.write_address + 1)
        return m
