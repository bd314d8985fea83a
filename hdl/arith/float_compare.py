"""Floating-point comparison, minimum and maximum."""

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_unpack import Operand, require_ieee, unpack
from hdl.arith.operator import Operator
from hdl.parameters import require_choice


class FloatCompare(Operator):
    """How two floating-point numbers are ordered: at most one of the three results is 1.

    **Latency** `stages` cycles. **Throughput** one pair a cycle. **Numerics** exact; the two zeros
    are equal, a NaN is unordered with everything.

    Parameters
    ----------
    number_format : FloatFormat
        Of the operands: a signed IEEE format.
    saturate : bool
        No NaN: every code is a number, and `unordered` is 0.
    stages : int
        Pipeline stages; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    less, equal, unordered : Out(1)
        Whether ``a < b``, ``a == b``, or one of them is a NaN.

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
        """Compare, cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.number_format, self.b, saturate=self.saturate)
        unordered = a.nan | b.nan
        same = (Value.cast(self.a) == Value.cast(self.b)) | (a.zero & b.zero)
        less, equal, neither = pipeline.cut(
            _before(a, b, self.a, self.b) & ~same & ~unordered, same & ~unordered, unordered
        )
        m.d.comb += [self.less.eq(less), self.equal.eq(equal), self.unordered.eq(neither)]
        return m


class FloatExtreme(Operator):
    """The smaller or the larger of two floating-point numbers.

    IEEE 754-2019's `minimum` and `maximum`: -0 is below +0, and a NaN makes the result NaN.

    **Latency** `stages` cycles. **Throughput** one pair a cycle. **Numerics** exact; the NaN is the
    quiet NaN of sign 0.

    Parameters
    ----------
    number_format : FloatFormat
        Of operands and result: a signed IEEE format.
    maximum : bool
        The larger if true, else the smaller.
    saturate : bool
        No NaN: every code is a number, and the result is one of the operands as it is.
    stages : int
        Pipeline stages; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    a, b : In(number_format.layout)
        The operands.
    result : Out(number_format.layout)
        One of them, or NaN.

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
        """Compare and choose, cut at the output."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        a = unpack(m, self.number_format, self.a, saturate=self.saturate)
        b = unpack(m, self.number_format, self.b, saturate=self.saturate)
        first = _before(a, b, self.a, self.b) ^ self.maximum
        chosen = Mux(first, self.a, self.b)
        quiet = Const(self.number_format.quiet_nan or 0, self.number_format.width)
        (result,) = pipeline.cut(Mux(a.nan | b.nan, quiet, chosen))
        m.d.comb += self.result.eq(result)
        return m


def _before(a: Operand, b: Operand, a_code: Value, b_code: Value) -> Value:
    """Return whether `a` comes before `b`, -0 before +0; of equal codes either may come first."""
    below = Value.cast(a_code)[:-1] < Value.cast(b_code)[:-1]
    return Mux(a.sign ^ b.sign, a.sign, below ^ a.sign)
