"""Product of two unsigned integers, one multiplier bit per cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.serial_handshake import serial_handshake
from hdl.parameters import require_range
from hdl.unit import Unit


class SerialMultiplier(Unit):
    """Product of two unsigned integers by shift and add, with valid/ready streams.

    **Latency** ``b_width + 1`` cycles. **Throughput** one product per ``b_width + 1`` cycles, or
    per ``b_width + 2`` without `overlap`. **Numerics** exact.

    Parameters
    ----------
    a_width : int
        Bits of the multiplicand, 1 to 64.
    b_width : int
        Bits of the multiplier, 1 to 64; each takes one cycle.
    overlap : bool
        Accept operands in the cycle that transfers a product. Without it, `ready` of the operands
        depends on registers only.

    Members
    -------
    operands : In(stream of {a, b})
        Multiplicand and multiplier.
    result : Out(stream of a_width + b_width bits)
        Products, in the order of the operands.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, a_width: int, b_width: int, overlap: bool = True) -> None:
        require_range("a_width", a_width, 1, 64)
        require_range("b_width", b_width, 1, 64)
        self.a_width = a_width
        self.b_width = b_width
        self.overlap = overlap
        operands = {"a": unsigned(a_width), "b": unsigned(b_width)}
        super().__init__(
            {
                "operands": In(stream.Signature(data.StructLayout(operands))),
                "result": Out(stream.Signature(unsigned(a_width + b_width))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift multiplier bits out of, and product bits into, one register."""
        m = Module()
        a = Signal(self.a_width, reset_less=True)
        high = Signal(self.a_width, reset_less=True)
        # Multiplier bits shift out at the bottom while product bits shift in at the top.
        low = Signal(self.b_width, reset_less=True)
        starts, steps = serial_handshake(
            m, self.operands, self.result, steps=self.b_width, overlap=self.overlap
        )

        total = Signal(self.a_width + 1)
        m.d.comb += [
            # The lowest remaining multiplier bit decides whether to add `a`, then is shifted out.
            total.eq(high + Mux(low[0], a, 0)),
            self.result.payload.eq(Cat(low, high)),
        ]
        with m.If(steps):
            m.d.sync += Cat(low, high).eq(Cat(low[1:], total))
        with m.If(starts):
            m.d.sync += [
                high.eq(0),
                low.eq(self.operands.payload.b),
                a.eq(self.operands.payload.a),
            ]
        return m
