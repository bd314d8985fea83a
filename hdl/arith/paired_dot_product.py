"""Two dot products that share a vector, of which an FPGA's multiplier computes two products."""

from amaranth.hdl import Cat, Module, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.dot_product import DotProduct
from hdl.arith.named import named
from hdl.arith.operator import Operator
from hdl.parameters import require_range
from hdl.target import Target, current_target

ELEMENT = signed(8)
"""An element of a vector."""

FIELD = 18
"""Bits of the lower sum: all sums of eight products differ modulo 2**18."""

LONGEST = 8
"""Maximum products of a cascade."""


class ProductCascade(Operator):
    """``x . a * 2**18 + x . b``: two sums of products in one number.

    Each multiplier computes ``x * (a * 2**18 + b)``, whose factors have 8 and 27 bits. These are a
    DSP48E2 slice with its preadder; the sum is the chain of the slices' adders, and the registers
    are those of the slices (AMD UG579). `synth/scripts/xcup_cells.v` maps the unit in this way.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** exact.

    Parameters
    ----------
    count : int
        Number of products of each sum, 1 to 8.
    stages : int
        Pipeline stages: after the products, and after the sum.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    x, a, b : In(ArrayLayout)
        The vectors, of INT8.
    result : Out
        Both sums. `split` returns them.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, count: int, stages: int = 0, enable: bool = False) -> None:
        require_range("count", count, 1, LONGEST)
        self.count = count
        vector = In(data.ArrayLayout(ELEMENT, count))
        # The sum has one more bit than the product of two elements, for each doubling.
        width = FIELD + 2 * ELEMENT.width + (LONGEST - 1).bit_length()
        super().__init__(
            {"x": vector, "a": vector, "b": vector, "result": Out(signed(width))},
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Pack, multiply, cut, add, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        products = []
        for i in range(self.count):
            packed = named(m, self.a[i].shift_left(FIELD) + self.b[i], f"packed_{i}")
            products.append(self.x[i] * packed)
        (total,) = pipeline.cut(sum(pipeline.cut(*products)))
        m.d.comb += self.result.eq(total)
        return m


def split(m: Module, name: str, total: Value) -> tuple[Value, Value, Value]:
    """Return the sums of a cascade: the higher one minus a carry, the carry, and the lower one.

    The lower sum is at least ``-8 * 128 * 127`` and at most 2**17, so that its value modulo 2**18
    is unique. A negative lower sum has borrowed one from the higher sum.
    """
    field = total[:FIELD]
    negative = named(m, field[-1] & field[:-1].any(), f"{name}_negative")
    return total[FIELD:].as_signed(), negative, Cat(field, negative).as_signed()


class PairedDotProduct(Operator):
    """``x . a`` and ``x . b``, exact, of INT8 vectors.

    An FPGA needs one multiplier for two products, since the products share an element of `x`: see
    `ProductCascade`. In standard cells the unit is two `DotProduct`.

    **Latency** `stages` cycles. **Throughput** one pair per cycle. **Numerics** exact.

    Parameters
    ----------
    count : int
        Number of products of each sum, 1 to 1024.
    stages : int
        Pipeline stages.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    x, a, b : In(ArrayLayout)
        The vectors.
    x_a, x_b : Out
        Their dot products.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, count: int, stages: int = 0, enable: bool = False) -> None:
        require_range("count", count, 1, 1024)
        self.count = count
        vector = In(data.ArrayLayout(ELEMENT, count))
        result = Out(signed(2 * ELEMENT.width + (count - 1).bit_length()))
        super().__init__(
            {"x": vector, "a": vector, "b": vector, "x_a": result, "x_b": result},
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Add the cascades, or two dot products."""
        m = Module()
        if current_target() is not Target.FPGA:
            for name in ("a", "b"):
                m.submodules[name] = one = DotProduct(
                    count=self.count, a=ELEMENT, b=ELEMENT, stages=self.stages, enable=self._enabled
                )
                m.d.comb += [
                    one.a.eq(self.x),
                    one.b.eq(getattr(self, name)),
                    getattr(self, f"x_{name}").eq(one.result),
                ]
                if self._enabled:
                    m.d.comb += one.enable.eq(self.enable)
            return m
        # As of a dot product, a third of the registers follow the last sum.
        before = self.stages * 2 // 3
        highs: list[Value] = []
        lows: list[Value] = []
        for number, start in enumerate(range(0, self.count, LONGEST)):
            items = range(start, min(start + LONGEST, self.count))
            m.submodules[f"cascade_{number}"] = cascade = ProductCascade(
                count=len(items), stages=before, enable=self._enabled
            )
            m.d.comb += [
                getattr(cascade, name)[i - start].eq(getattr(self, name)[i])
                for name in ("x", "a", "b")
                for i in items
            ]
            if self._enabled:
                m.d.comb += cascade.enable.eq(self.enable)
            high, carry, low = split(m, f"low_{number}", cascade.result)
            highs.append(high + carry)
            lows.append(low)
        for name, addends in (("a", highs), ("b", lows)):
            total = named(m, tree_sum(addends), f"total_{name}")
            held = delay_line(
                m,
                total,
                self.stages - before,
                name=f"held_{name}",
                enable=self.enable if self._enabled else None,
            )
            m.d.comb += getattr(self, f"x_{name}").eq(held[-1])
        return m

    @property
    def _enabled(self) -> bool:
        """Whether the unit has the input `enable`."""
        return "enable" in self.signature.members
