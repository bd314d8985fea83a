"""Product of two unsigned integers, one digit a cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class SerialMultiplier(Unit):
    """Product of two unsigned integers by shift and add, valid/ready.

    **Latency** ``b_width + 1`` cycles. **Throughput** one product in as many cycles. **Numerics**
    exact.

    Parameters
    ----------
    a_width : int
        Bits of the multiplicand, 1 to 64.
    b_width : int
        Bits of the multiplier, 1 to 64: one cycle each.

    Members
    -------
    operands : In(stream of {a, b})
        What to multiply.
    result : Out(stream of a_width + b_width bits)
        The products, in order.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, a_width: int, b_width: int) -> None:
        require_range("a_width", a_width, 1, 64)
        require_range("b_width", b_width, 1, 64)
        self.a_width = a_width
        self.b_width = b_width
        operands = {"a": unsigned(a_width), "b": unsigned(b_width)}
        super().__init__(
            {
                "operands": In(stream.Signature(data.StructLayout(operands))),
                "result": Out(stream.Signature(unsigned(a_width + b_width))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the multiplier out of, and the product's low digits into, one register."""
        m = Module()
        a = Signal(self.a_width, reset_less=True)
        high = Signal(self.a_width, reset_less=True)
        # The multiplier leaves at the bottom while the product enters at the top.
        low = Signal(self.b_width, reset_less=True)
        left = Signal(range(self.b_width + 1))
        full = Signal()

        total = Signal(self.a_width + 1)
        done = full & (left == 0)
        m.d.comb += [
            total.eq(high + Mux(low[0], a, 0)),
            self.result.valid.eq(done),
            self.result.payload.eq(Cat(low, high)),
            self.operands.ready.eq(~full | (done & self.result.ready)),
        ]
        with m.If(done & self.result.ready):
            m.d.sync += full.eq(0)
        with m.If(left != 0):
            m.d.sync += [left.eq(left - 1), Cat(low, high).eq(Cat(low[1:], total))]
        with m.If(self.operands.valid & self.operands.ready):
            m.d.sync += [
                full.eq(1),
                left.eq(self.b_width),
                high.eq(0),
                low.eq(self.operands.payload.b),
                a.eq(self.operands.payload.a),
            ]
        return m
