"""Square root of an unsigned integer, one digit a cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.serial_handshake import serial_handshake
from hdl.parameters import require_range
from hdl.unit import Unit


def root_step(remainder: Value, pair: Value, root: Value) -> tuple[Value, Value]:
    """Bring down two digits of the operand and subtract what another digit of the root adds.

    Parameters
    ----------
    remainder : Value
        At most twice the root: one bit longer.
    pair : Value
        The next two bits of the operand.
    root : Value
        The root's digits so far.

    Returns
    -------
    tuple[Value, Value]
        The new remainder and the next digit of the root.
    """
    partial = Cat(pair, remainder)
    difference = partial - Cat(Const(1, 2), root)
    fits = ~difference[-1]
    return Mux(fits, difference, partial)[: len(remainder)], fits


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
        """Shift the operand out of one register, the root into another."""
        m = Module()
        operand = Signal(2 * self.digits, reset_less=True)
        root = Signal(self.digits, reset_less=True)
        # At most twice the root: one bit longer.
        remainder = Signal(self.digits + 1, reset_less=True)
        starts, steps = serial_handshake(m, self.operand, self.result, steps=self.digits)
        # Two digits of the operand give one of the root, as in the school's method.
        rest, digit = root_step(remainder, operand[-2:], root)
        m.d.comb += self.result.payload.eq(root)
        with m.If(steps):
            m.d.sync += [
                remainder.eq(rest),
                root.eq(Cat(digit, root)),
                operand.eq(operand << 2),
            ]
        with m.If(starts):
            m.d.sync += [
                remainder.eq(0),
                root.eq(0),
                operand.eq(self.operand.payload),
            ]
        return m
