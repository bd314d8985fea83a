"""Sum of products in the lookup tables and carry chains of an FPGA, without its multipliers."""

from amaranth.hdl import Cat, Const, Module, Shape, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.dot_product import GROUP, DotProduct
from hdl.arith.named import named
from hdl.arith.operator import Operator
from hdl.arith.shapes import resized
from hdl.parameters import require, require_range

PAIR = 2
"""Products of a chain: its delay is that of eight adders, of which one adds both products."""


class ProductChain(Operator):
    """``a[0] * b[0] + a[1] * b[1] + ...``, exact, one digit of all multipliers `b` after another.

    A Booth digit of a multiplier selects -2, -1, 0, 1 or 2 times the other factor. An adder adds
    this multiple to the sum of the digits before. A bit of the adder is a function of two bits of
    the factor, three of the digit and one of the sum: one lookup table with six inputs, and its
    carry chain.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** exact.

    Parameters
    ----------
    count : int
        Number of products, 1 to 4; the delay is that of ``count * b.width / 2`` adders.
    a, b : Shape
        Shape of the elements of each vector: signed, 2 to 32 bits, an even number for `b`.
    stages : int
        Pipeline stages of the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(ArrayLayout)
        The vectors.
    result : Out
        Their dot product.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, count: int, a: Shape, b: Shape, stages: int = 0, enable: bool = False
    ) -> None:
        require_range("count", count, 1, 4)
        for name, shape, rule in (("a", a, a.signed), ("b", b, b.signed and b.width % 2 == 0)):
            require_range(f"bits of {name}", shape.width, 2, 32)
            needs = "signed with an even number of bits" if name == "b" else "signed"
            require(rule, f"{name} must be {needs}", shape)
        self.count = count
        members = {
            "a": In(data.ArrayLayout(a, count)),
            "b": In(data.ArrayLayout(b, count)),
            "result": Out(signed(a.width + b.width + (count - 1).bit_length())),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Add a row per digit and product, from the lowest digits; cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        # A row has 2 bits more than `a`. All lower digits add less than a third of a digit's rows.
        width = len(self.a[0]) + 1 + self.count.bit_length()
        total: Value = Const(0, signed(width))
        bits: list[Value] = []
        digits = len(self.b[0]) // 2
        for digit in range(digits):
            for i in range(self.count):
                row, negative = self._row(m, self.a[i], self.b[i], digit, width)
                # The bit below adds the one that completes a negated row.
                added = Cat(Const(1, 1), resized(total, width)) + Cat(negative, row)
                total = named(m, added[1 : width + 1].as_signed(), f"sum_{digit}_{i}")
            if digit < digits - 1:
                bits.append(total[:2])
                total = total[2:].as_signed()
        (result,) = pipeline.cut(Cat(*bits, total).as_signed())
        m.d.comb += self.result.eq(result)
        return m

    def _row(self, m: Module, a: Value, b: Value, digit: int, width: int) -> tuple[Value, Value]:
        """Return a digit's multiple of a factor, less one if it is negated, and whether it is."""
        low = b[2 * digit - 1] if digit else Const(0, 1)
        middle, high = b[2 * digit], b[2 * digit + 1]
        single = named(m, low ^ middle, "single")
        double = named(m, (low & middle & ~high) | (~low & ~middle & high), "double")
        once, twice = resized(a, width), resized(a.shift_left(1), width)
        magnitude = (once & single.replicate(width)) | (twice & double.replicate(width))
        return magnitude ^ high.replicate(width), high


class ChainedDotProduct(DotProduct):
    """`DotProduct` of signed vectors by `ProductChain`, whose shapes it takes."""

    def elaborate(self, platform: object) -> Module:
        """Add pairs of products, cut, add groups of pairs, cut, add these, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=3)
        sums: list[Value] = []
        for start in range(0, self.count, PAIR):
            items = range(start, min(start + PAIR, self.count))
            m.submodules[f"chain_{start // PAIR}"] = chain = ProductChain(
                count=len(items),
                a=Shape.cast(self.a.shape().elem_shape),
                b=Shape.cast(self.b.shape().elem_shape),
            )
            for i in items:
                m.d.comb += [chain.a[i - start].eq(self.a[i]), chain.b[i - start].eq(self.b[i])]
            sums.append(chain.result)
        sums = [*pipeline.cut(*sums)]
        groups = [tree_sum(sums[i : i + GROUP]) for i in range(0, len(sums), GROUP)]
        (result,) = pipeline.cut(tree_sum(pipeline.cut(*groups)))
        m.d.comb += self.result.eq(result)
        return m
