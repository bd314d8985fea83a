"""Leading-zero count as a tree."""

from amaranth.hdl import Cat, Const, Module, Mux, Value, ValueLike
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.parameters import require_range


def leading_zeros(value: ValueLike) -> Value:
    """Return the number of zeros above the highest one; the width if all bits are zero."""
    value = Value.cast(value)
    width = len(value)
    size = 1 << (width - 1).bit_length()
    # Pad a value that does not fill the tree with ones below, which limit the count to its width.
    padded = Cat(Const(-1, size - width), value) if size > width else value
    count, empty = _count(padded)
    return Cat(count, empty)[: width.bit_length()]


def _count(value: Value) -> tuple[Value, Value]:
    """Return the count modulo a power-of-two width, and whether all bits are 0."""
    if len(value) == 1:
        return Const(0, 0), ~value
    middle = len(value) // 2
    low, low_empty = _count(value[:middle])
    high, high_empty = _count(value[middle:])
    # If the upper half is empty, the count is its width plus the lower half's count.
    count = Cat(Mux(high_empty, low, high)[: len(low)], high_empty & ~low_empty)
    return count, high_empty & low_empty


class LeadingZeros(Operator):
    """Number of zeros above the highest one in a word.

    **Latency** `stages` cycles. **Throughput** one word per cycle. **Numerics** exact; an all-zero
    word gives `width`.

    Parameters
    ----------
    width : int
        Bits of the word, 1 to 128.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(width)
        The word.
    result : Out(range(width + 1))
        The count.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, width: int, stages: int = 0, enable: bool = False) -> None:
        require_range("width", width, 1, 128)
        super().__init__(
            {"a": In(width), "result": Out(range(width + 1))}, stages=stages, enable=enable
        )

    def elaborate(self, platform: object) -> Module:
        """Count; cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        (result,) = pipeline.cut(leading_zeros(self.a))
        m.d.comb += self.result.eq(result)
        return m
