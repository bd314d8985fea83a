"""Floating-point comparison, minimum and maximum."""

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_order import total_order_less
from hdl.arith.float_unpack import require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require_choice


class FloatCompare(Operator):
    """Order of two floating-point numbers; at most one of the three results is 1.

    **Latency** `stages` cycles. **Throughput** one pair per cycle. **Numerics** exact; the two
    zeros equal, and a NaN is unordered with every number.

    Parameters
    ----------
    number_format : FloatFormat
        Format of the operands; a signed IEEE format.
    saturate : bool
        No NaN: every code is a number, and `unordered` is 0.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    less, equal, unordered : Out(1)
        1 if ``a < b``, if ``a == b``, or if an operand is a NaN.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        number_format: FloatFormat = BINARY16,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_choice("saturate", saturate, (False, True))
        self.number_format = number_format
        self.saturate = saturate
        members = {"a": In(number_format.layout), "b": In(number_format.layout)}
        results = {"less": Out(1), "equal": Out(1), "unordered": Out(1)}
        super().__init__(members | results, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Compare; cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.number_format, self.b, saturate=self.saturate)
        unordered = a.nan | b.nan
        same = (Value.cast(self.a) == Value.cast(self.b)) | (a.zero & b.zero)
        before = total_order_less(Value.cast(self.a), Value.cast(self.b))
        less, equal, neither = pipeline.cut(
            before & ~same & ~unordered, same & ~unordered, unordered
        )
        m.d.comb += [self.less.eq(less), self.equal.eq(equal), self.unordered.eq(neither)]
        return m


class FloatExtreme(Operator):
    """The smaller or the larger of two floating-point numbers.

    The operations `minimum` and `maximum` of IEEE 754-2019: -0 is less than +0, and a NaN operand
    gives a NaN.

    **Latency** `stages` cycles. **Throughput** one pair per cycle. **Numerics** exact; a NaN result
    is the quiet NaN with sign 0.

    Parameters
    ----------
    number_format : FloatFormat
        Format of operands and result; a signed IEEE format.
    maximum : bool
        Return the larger operand if true, the smaller one otherwise.
    saturate : bool
        No NaN: every code is a number, and the result is one of the operands, unchanged.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    result : Out(number_format.layout)
        The selected operand, or NaN.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        number_format: FloatFormat = BINARY16,
        maximum: bool,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_choice("maximum", maximum, (False, True))
        require_choice("saturate", saturate, (False, True))
        self.number_format = number_format
        self.maximum = maximum
        self.saturate = saturate
        layout = number_format.layout
        super().__init__(
            {"a": In(layout), "b": In(layout), "result": Out(layout)}, stages=stages, enable=enable
        )

    def elaborate(self, platform: object) -> Module:
        """Compare and select; cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.number_format, self.b, saturate=self.saturate)
        before = total_order_less(Value.cast(self.a), Value.cast(self.b))
        first = before ^ self.maximum
        chosen = Mux(first, self.a, self.b)
        quiet = Const(self.number_format.quiet_nan or 0, self.number_format.width)
        (result,) = pipeline.cut(Mux(a.nan | b.nan, quiet, chosen))
        m.d.comb += self.result.eq(result)
        return m
