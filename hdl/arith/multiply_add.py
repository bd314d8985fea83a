"""Product of two integers plus an addend and a constant, with a single carry chain."""

from amaranth.hdl import Module, Shape, Value, ValueLike, signed, unsigned
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.operator import Operator
from hdl.parameters import require_range
from hdl.target import Target, current_target


class MultiplyAdd(Operator):
    """``a * b + c + constant`` modulo ``2**width``.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** exact, unless
    `width` is less than the sum needs. Booth digits of the multiplier `b` select rows, which full
    adders reduce together with the addends (`CarrySaveSum`). For an FPGA the unit uses ``*`` and
    ``+``.

    Parameters
    ----------
    a, b : Shape
        Shapes of the factors; 1 to 64 bits each. The factor with fewer bits should be `b`.
    c : Shape or None
        Shape of the addend; None omits it.
    constant : int
        Constant addend, for example half a unit of a rounded result.
    width : int
        Bits of the result, 1 to 128. By default the width of the product or of `c`, whichever is
        larger, plus one if anything is added.
    stages : int
        Pipeline stages after the sum.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b, c : In
        The operands; `c` only if it has a shape.
    result : Out
        The sum, signed if any operand is.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        a: Shape,
        b: Shape,
        c: Shape | None = None,
        constant: int = 0,
        width: int | None = None,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_range("bits of a", a.width, 1, 64)
        require_range("bits of b", b.width, 1, 64)
        operands = {"a": a, "b": b} | ({} if c is None else {"c": c})
        if width is None:
            width = max(a.width + b.width, 0 if c is None else c.width)
            width += c is not None or constant != 0
        require_range("width", width, 1, 128)
        self.constant = constant
        shape = signed if any(shape.signed for shape in operands.values()) else unsigned
        members = {name: In(shape) for name, shape in operands.items()}
        super().__init__(members | {"result": Out(shape(width))}, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Add the product, the addend and the constant; cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        total = CarrySaveSum(m, len(self.result))
        total.add_product(self.a, self.b)
        total.add(self.constant)
        if "c" in self.signature.members:
            total.add(self.c)
        (result,) = pipeline.cut(total.result())
        m.d.comb += self.result.eq(result)
        return m


class DividedProduct(Operator):
    """``a * b + constant``, with pipeline registers in the middle of its full adders.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** exact. Before the
    registers, full adders reduce the Booth rows of each half of `b` to two numbers; after them, the
    four numbers are added with one carry chain. Both parts take about half of the time of the
    whole. For an FPGA the registers hold the product.

    Parameters
    ----------
    a, b : Shape
        Shapes of the factors; 1 to 64 and 2 to 64 bits. The factor with fewer bits should be `b`.
    constant : int
        Constant addend, for example half a unit of a rounded result.
    stages : int
        Pipeline stages in the middle.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In
        The operands.
    result : Out
        The sum, signed if any operand is.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, a: Shape, b: Shape, constant: int = 0, stages: int = 1, enable: bool = False
    ) -> None:
        require_range("bits of a", a.width, 1, 64)
        require_range("bits of b", b.width, 2, 64)
        self.constant = constant
        shape = signed if a.signed or b.signed else unsigned
        result = shape(a.width + b.width + (constant != 0))
        members = {"a": In(a), "b": In(b), "result": Out(result)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Reduce the product with each half of `b` to two numbers; cut; add all four."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        width, constant = len(self.result), self.constant
        total = CarrySaveSum(m, width)
        if current_target() is Target.FPGA:
            (product,) = pipeline.cut(self.a * self.b)
            total.add(product)
        else:
            middle = len(self.b) // 2
            low, high = self.b[:middle], self.b[middle:]
            addends: list[Value] = []
            if self.b.shape().signed:
                high = high.as_signed()
            for factor, place in ((low, 0), (high, middle)):
                half = CarrySaveSum(m, width - place)
                half.add_product(self.a, factor)
                *pair, rest = half.open_pair()
                addends += (number.shift_left(place) for number in pair)
                constant += rest << place
            for number in pipeline.cut(*addends):
                total.add(number)
        total.add(constant)
        m.d.comb += self.result.eq(total.result())
        return m


def multiply_add(
    m: Module, name: str, a: Value, b: Value, c: Value | None = None, *, constant: int = 0
) -> Value:
    """Return the exact ``a * b + c + constant`` from a submodule without registers."""
    m.submodules[name] = unit = MultiplyAdd(
        a=a.shape(), b=b.shape(), c=None if c is None else c.shape(), constant=constant
    )
    m.d.comb += [unit.a.eq(a), unit.b.eq(b)]
    if c is not None:
        m.d.comb += unit.c.eq(c)
    return unit.result


def divided_product(
    m: Module, name: str, a: Value, b: Value, *, enable: ValueLike, constant: int = 0
) -> Value:
    """Return the exact ``a * b + constant`` from a submodule with registers in its middle."""
    m.submodules[name] = unit = DividedProduct(
        a=a.shape(), b=b.shape(), constant=constant, enable=True
    )
    m.d.comb += [unit.enable.eq(enable), unit.a.eq(a), unit.b.eq(b)]
    return unit.result
