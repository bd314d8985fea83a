"""Square root of an unsigned integer, one digit per cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.serial_handshake import serial_handshake
from hdl.parameters import require_range
from hdl.unit import Unit


def root_step(remainder: Value, pair: Value, root: Value) -> tuple[Value, Value]:
    """Append two operand digits to the remainder and subtract the next root digit's increment.

    Parameters
    ----------
    remainder : Value
        Partial remainder, at most twice the root: one bit longer.
    pair : Value
        The next two bits of the operand.
    root : Value
        Root digits computed so far.

    Returns
    -------
    tuple[Value, Value]
        The new remainder and the next root digit.
    """
    partial = Cat(pair, remainder)
    difference = partial - Cat(Const(1, 2), root)
    fits = ~difference[-1]
    return Mux(fits, difference, partial)[: len(remainder)], fits


class SerialSquareRoot(Unit):
    """Floor of the square root of an unsigned integer, with valid/ready streams.

    **Latency** ``ceil(width / 2) + 1`` cycles. **Throughput** one root in the same number of
    cycles. **Numerics** the largest integer whose square does not exceed the operand.

    Parameters
    ----------
    width : int
        Bits of the operand, 2 to 64; the root has half of them, rounded up.

    Members
    -------
    operand : In(stream of width bits)
        Radicands.
    result : Out(stream of ceil(width / 2) bits)
        Roots, in the order of the operands.

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
        """Shift the operand out of one register and the root into another."""
        m = Module()
        operand = Signal(2 * self.digits, reset_less=True)
        root = Signal(self.digits, reset_less=True)
        # The remainder is at most twice the root, so it has one more bit.
        remainder = Signal(self.digits + 1, reset_less=True)
        starts, steps = serial_handshake(m, self.operand, self.result, steps=self.digits)
        # Each step consumes two operand digits and produces one root digit.
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
