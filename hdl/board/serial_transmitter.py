"""Transmitter of a serial line with 8 data bits, no parity and one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.board.board_parameters import BITS_PER_BYTE, LEAST_DIVISOR
from hdl.parameters import require_range
from hdl.unit import Unit


class SerialTransmitter(Unit):
    """Send bytes to an asynchronous line.

    **Latency** 1 cycle. **Throughput** one byte per 10 bits and 1 cycle.

    Parameters
    ----------
    divisor : int
        Clock cycles per bit, 4 to 65535.

    Members
    -------
    bytes : In(stream)
        Bytes to send.
    line : Out(1)
        The line, driven by a register; 1 while idle.

    Raises
    ------
    ValueError
        If `divisor` is out of range.
    """

    def __init__(self, *, divisor: int) -> None:
        require_range("divisor", divisor, LEAST_DIVISOR, 65535)
        self.divisor = divisor
        super().__init__({"bytes": In(stream.Signature(8)), "line": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Shift start bit, data and stop bit to the line."""
        m = Module()
        bits = Signal(BITS_PER_BYTE, init=(1 << BITS_PER_BYTE) - 1)
        wait, left = Signal(range(self.divisor)), Signal(range(BITS_PER_BYTE + 1))
        m.d.comb += [self.line.eq(bits[0]), self.bytes.ready.eq(left == 0)]
        m.d.sync += wait.eq(wait - 1)
        with m.If(self.bytes.ready):
            m.d.sync += wait.eq(self.divisor - 1)
            with m.If(self.bytes.valid):
                m.d.sync += [
                    bits.eq(Cat(Const(0, 1), self.bytes.payload, Const(1, 1))),
                    left.eq(BITS_PER_BYTE),
                ]
        with m.Elif(wait == 0):
            # Ones follow the stop bit, so that the idle line is 1.
            m.d.sync += [
                wait.eq(self.divisor - 1),
                left.eq(left - 1),
                bits.eq(Cat(bits[1:], Const(1, 1))),
            ]
        return m
