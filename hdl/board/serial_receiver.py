"""Receiver of a serial line with 8 data bits, no parity and one stop bit."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.board.board_parameters import BITS_PER_BYTE, LEAST_DIVISOR
from hdl.parameters import require_range
from hdl.unit import Unit


class SerialReceiver(Unit):
    """Receive bytes from an asynchronous line.

    A start bit that is shorter than half a bit is ignored. After a byte without a stop bit, the
    receiver waits until the line is idle.

    **Latency** 3 cycles and 9.5 bits from the start bit to the byte. **Throughput** one byte per 10
    bits.

    Parameters
    ----------
    divisor : int
        Clock cycles per bit, 4 to 65535.

    Members
    -------
    line : In(1)
        The line; 1 while idle.
    byte, valid : Out(8), Out(1)
        A byte, for one cycle.
    corrupted : Out(1)
        The byte has no stop bit.

    Raises
    ------
    ValueError
        If `divisor` is out of range.
    """

    def __init__(self, *, divisor: int) -> None:
        require_range("divisor", divisor, LEAST_DIVISOR, 65535)
        self.divisor = divisor
        super().__init__({"line": In(1), "byte": Out(8), "valid": Out(1), "corrupted": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Sample each bit in its middle, after two stages against metastability."""
        m = Module()
        stages = Signal(2, init=0b11)
        line = stages[1]
        wait, left = Signal(range(self.divisor)), Signal(range(BITS_PER_BYTE + 1))
        m.d.sync += stages.eq(Cat(self.line, stages[0]))
        m.d.comb += self.corrupted.eq(~line)
        with m.FSM(name="bits"):
            with m.State("IDLE"):
                m.d.sync += [wait.eq(self.divisor // 2 - 1), left.eq(BITS_PER_BYTE)]
                with m.If(~line):
                    m.next = "BITS"
            with m.State("BITS"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.sync += [wait.eq(self.divisor - 1), left.eq(left - 1)]
                    # The start bit is shifted out of `byte`; the stop bit is not stored.
                    with m.If(left > 1):
                        m.d.sync += self.byte.eq(Cat(self.byte[1:], line))
                    with m.Else():
                        m.d.comb += self.valid.eq(1)
                        m.next = "STOP"
                    with m.If((left == BITS_PER_BYTE) & line):
                        m.next = "IDLE"
            with m.State("STOP"):
                with m.If(line):
                    m.next = "IDLE"
        return m
