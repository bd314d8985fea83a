"""Product of two integers plus what rounding or a bias adds: one carry chain for all of it."""

from amaranth.hdl import Module, Shape, Value, signed, unsigned
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum
from hdl.arith.operator import Operator
from hdl.parameters import require_range


class MultiplyAdd(Operator):
    """``a * b + c + constant`` modulo ``2**width``.

    **Latency** `stages` cycles. **Throughput** one result a cycle. **Numerics** exact, unless
    `width` is less than the sum needs. Digits of the multiplier `b` choose rows (Booth), which full
    adders reduce together with what is added (`CarrySaveSum`); for an FPGA it is ``*`` and ``+``.

    Parameters
    ----------
    a, b : Shape
        The factors; 1 to 64 bits each. The one of fewer bits should be `b`.
    c : Shape or None
        A value to add, or that there is none.
    constant : int
        A constant to add, as half a unit of a rounded result.
    width : int
        Bits of the result, 1 to 128; if absent, as many as the wider of product and `c` has, and
        one more if anything is added.
    stages : int
        Pipeline stages behind the sum.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a, b, c : In
        The operands; `c` if it has a shape.
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
        """Add the product and what else there is, cut."""
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


def multiply_add(
    m: Module, name: str, a: Value, b: Value, c: Value | None = None, *, constant: int = 0
) -> Value:
    """Return ``a * b + c + constant``, exact, of a submodule without registers."""
    m.submodules[name] = unit = MultiplyAdd(
        a=a.shape(), b=b.shape(), c=None if c is None else c.shape(), constant=constant
    )
    m.d.comb += [unit.a.eq(a), unit.b.eq(b)]
    if c is not None:
        m.d.comb += unit.c.eq(c)
    return unit.result
