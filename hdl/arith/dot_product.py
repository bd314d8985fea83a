"""Dot product of integers: all products' rows in one tree of full adders, one carry chain."""

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
"""Products whose rows are reduced to two numbers before the first cut."""


class DotProduct(Operator):
    """``a[0] * b[0] + a[1] * b[1] + ...``, exact.

    **Latency** `stages` cycles. **Throughput** one sum a cycle. **Numerics** exact: the result has
    the bits of a product and those that the count adds, so it cannot overflow. No product is formed
    by itself: the rows of four are reduced to two numbers, those of all groups to two again, and
    these are added. For an FPGA it is products and a tree of sums.

    Parameters
    ----------
    count : int
        Number of products, 1 to 1024.
    a, b : Shape
        An element of either vector; 2 to 32 bits each.
    stages : int
        Pipeline stages: behind the groups, behind the two numbers, and the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

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
        """Reduce groups, cut, reduce what they leave, cut, add, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        write = self._multiplied if current_target() is Target.FPGA else self._reduced
        (result,) = pipeline.cut(write(m, pipeline))
        m.d.comb += self.result.eq(result)
        return m

    def _multiplied(self, m: Module, pipeline: Pipeline) -> Value:
        """Return the sum of products that an FPGA's multipliers form."""
        products = pipeline.cut(*[self.a[i] * self.b[i] for i in range(self.count)])
        starts = range(0, self.count, GROUP)
        return tree_sum(pipeline.cut(*[tree_sum(products[i : i + GROUP]) for i in starts]))

    def _reduced(self, m: Module, pipeline: Pipeline) -> Value:
        """Return the sum of all products' rows; the constants of their signs join at the end."""
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
