"""Dot product of integers: one tree of full adders for all products, one carry chain."""

from amaranth.hdl import Module, Shape, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.operator import Operator, Pipeline
from hdl.arith.prefix_sum import prefix_sum
from hdl.parameters import require_range
from hdl.target import Target, current_target

GROUP = 4
"""Number of products reduced to one carry-save pair before the first cut."""


class DotProduct(Operator):
    """``a[0] * b[0] + a[1] * b[1] + ...``, exact.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** exact: the result
    has the bits of one product plus the growth of `count` terms, so it cannot overflow. No single
    product is formed: each group of four products is reduced to a carry-save pair, all pairs are
    reduced to one pair, and one adder adds it. For an FPGA the unit uses ``*`` and a tree of
    adders.

    Parameters
    ----------
    count : int
        Number of products, 1 to 1024.
    a, b : Shape
        Element shape of each vector; 2 to 32 bits.
    stages : int
        Pipeline stages: after the groups, after the final pair, and at the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(ArrayLayout)
        The vectors.
    result : Out
        Their dot product, signed if either shape is.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, count: int, a: Shape, b: Shape, stages: int = 0, enable: bool = False
    ) -> None:
        require_range("count", count, 1, 1024)
        require_range("bits of a", a.width, 2, 32)
        require_range("bits of b", b.width, 2, 32)
        self.count = count
        shape = signed if a.signed or b.signed else unsigned
        members = {
            "a": In(data.ArrayLayout(a, count)),
            "b": In(data.ArrayLayout(b, count)),
            "result": Out(shape(a.width + b.width + (count - 1).bit_length())),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Reduce groups, cut, reduce their pairs, cut, add, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        write = self._multiplied if current_target() is Target.FPGA else self._reduced
        (result,) = pipeline.cut(write(m, pipeline))
        m.d.comb += self.result.eq(result)
        return m

    def _multiplied(self, m: Module, pipeline: Pipeline) -> Value:
        """Return the sum of products that FPGA multipliers compute."""
        products = pipeline.cut(*[self.a[i] * self.b[i] for i in range(self.count)])
        starts = range(0, self.count, GROUP)
        return tree_sum(pipeline.cut(*[tree_sum(products[i : i + GROUP]) for i in starts]))

    def _reduced(self, m: Module, pipeline: Pipeline) -> Value:
        """Return the sum of all products' rows; add the constants of their signs at the end."""
        width = len(self.result)
        halves: list[Value] = []
        total = CarrySaveSum(m, width)
        for start in range(0, self.count, GROUP):
            group = CarrySaveSum(m, width + 2)
            for i in range(start, min(start + GROUP, self.count)):
                group.add_product(self.a[i], self.b[i])
            *pair, constant = group.open_pair()
            halves += pair
            total.add(constant)
        for half in pipeline.cut(*halves):
            total.add(half)
        one, two = pipeline.cut(*total.pair())
        return prefix_sum(m, one, two)[:width]
