"""Square root of an unsigned integer, one digit a cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class SerialSquareRoot(Unit):
    """Floor of the square root of an unsigned integer, valid/ready.

    **Latency** ``ceil(width / 2) + 1`` cycles. **Throughput** one root in as many cycles.
    **Numerics** the largest integer whose square is not above the operand.

    Parameters
    ----------
    width : int
        Bits of the operand, 2 to 64; the root has half of them, rounded up.

    Members
    -------
    operand : In(stream of width bits)
        What to take the root of.
    result : Out(stream of ceil(width / 2) bits)
        The roots, in order.

    Raises
    ------
    ValueError
        If the width is outside its range.
    """

    def __init__(self, *, width: int) -> None:
        require_range("width", width, 2, 64)
        self.width = width
        self.digits = (width + 1) // 2
        super().__init__(
            {
                "operand": In(stream.Signature(unsigned(width))),
                "result": Out(stream.Signature(unsigned(self.digits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Bring down two digits of the operand, subtract what the next digit of the root adds."""
        m = Module()
        operand = Signal(2 * self.digits, reset_less=True)
        root = Signal(self.digits, reset_less=True)
        # At most twice the root: one bit longer.
        remainder = Signal(self.digits + 1, reset_less=True)
        left = Signal(range(self.digits + 1))
        full = Signal()

        partial = Cat(operand[-2:], remainder)
        difference = Signal(len(partial) + 1)
        fits = ~difference[-1]
        done = full & (left == 0)
        m.d.comb += [
            difference.eq(partial - Cat(Const(1, 2), root)),
            self.result.valid.eq(done),
            self.result.payload.eq(root),
            self.operand.ready.eq(~full | (done & self.result.ready)),
        ]
        with m.If(done & self.result.ready):
            m.d.sync += full.eq(0)
        with m.If(left != 0):
            m.d.sync += [
                left.eq(left - 1),
                remainder.eq(Mux(fits, difference, partial)),
                root.eq(Cat(fits, root)),
                operand.eq(operand << 2),
            ]
        with m.If(self.operand.valid & self.operand.ready):
            m.d.sync += [
                full.eq(1),
                left.eq(self.digits),
                remainder.eq(0),
                root.eq(0),
                operand.eq(self.operand.payload),
            ]
        return m
