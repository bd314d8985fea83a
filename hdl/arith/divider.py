"""Restoring division of unsigned integers, iterative or pipelined."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.serial_handshake import serial_handshake
from hdl.parameters import require, require_range
from hdl.unit import Unit


def restoring_step(remainder: Value, digit: Value, divisor: Value) -> tuple[Value, Value]:
    """Append one dividend digit to the remainder and subtract the divisor if it fits.

    Parameters
    ----------
    remainder : Value
        Partial remainder, less than the divisor and of its width.
    digit : Value
        The next bit of the dividend.
    divisor : Value
        The divisor.

    Returns
    -------
    tuple[Value, Value]
        The new remainder and the quotient digit.
    """
    # The difference has one more bit than the operands; its top bit is the borrow.
    partial = Cat(digit, remainder)
    difference = partial - divisor
    fits = ~difference[-1]
    return Mux(fits, difference, partial)[: len(divisor)], fits


def _check(dividend_width: int, divisor_width: int) -> None:
    """Check the widths that both dividers share."""
    require_range("dividend_width", dividend_width, 1, 64)
    require_range("divisor_width", divisor_width, 1, 64)


class IterativeDivider(Unit):
    """Quotient and remainder of two unsigned integers, with valid/ready streams.

    **Latency** ``dividend_width / digits_per_cycle + 1`` cycles. **Throughput** one division in the
    same number of cycles. **Numerics** exact. A division by zero gives a quotient of all ones and
    the low bits of the dividend as remainder, as the digit recurrence does.

    Parameters
    ----------
    dividend_width : int
        Bits of dividend and quotient, 1 to 64.
    divisor_width : int
        Bits of divisor and remainder, 1 to 64.
    digits_per_cycle : int
        Quotient digits computed per cycle; a divisor of `dividend_width`.

    Members
    -------
    operands : In(stream of {dividend, divisor})
        Dividend and divisor.
    result : Out(stream of {quotient, remainder})
        Quotient and remainder, in the order of the operands.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    CONTINUES = False

    def __init__(
        self, *, dividend_width: int, divisor_width: int, digits_per_cycle: int = 1
    ) -> None:
        _check(dividend_width, divisor_width)
        require_range("digits_per_cycle", digits_per_cycle, 1, dividend_width)
        require(
            dividend_width % digits_per_cycle == 0,
            f"digits_per_cycle must divide dividend_width ({dividend_width})",
            digits_per_cycle,
        )
        self.digits_per_cycle = digits_per_cycle
        self.dividend_width = dividend_width
        self.divisor_width = divisor_width
        operands = {"dividend": unsigned(dividend_width), "divisor": unsigned(divisor_width)}
        if self.CONTINUES:
            operands["remainder"] = unsigned(divisor_width)
        result = {"quotient": unsigned(dividend_width), "remainder": unsigned(divisor_width)}
        super().__init__(
            {
                "operands": In(stream.Signature(data.StructLayout(operands))),
                "result": Out(stream.Signature(data.StructLayout(result))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Shift the dividend out of, and the quotient into, one register."""
        m = Module()
        cycles = self.dividend_width // self.digits_per_cycle
        divisor = Signal(self.divisor_width, reset_less=True)
        remainder = Signal(self.divisor_width, reset_less=True)
        # Dividend digits shift out at the top while quotient digits shift in at the bottom.
        shifted = Signal(self.dividend_width, reset_less=True)
        starts, steps = serial_handshake(m, self.operands, self.result, steps=cycles)

        partial = remainder
        digits: list[Value] = []
        # Several restoring steps are chained per cycle, each on the previous step's remainder.
        for row in range(self.digits_per_cycle):
            step, digit = restoring_step(partial, shifted[-1 - row], divisor)
            partial = Signal(self.divisor_width, name=f"remainder_{row}")
            m.d.comb += partial.eq(step)
            digits.insert(0, digit)

        m.d.comb += [
            self.result.payload.quotient.eq(shifted),
            self.result.payload.remainder.eq(remainder),
        ]
        with m.If(steps):
            m.d.sync += [remainder.eq(partial), shifted.eq(Cat(*digits, shifted))]
        with m.If(starts):
            m.d.sync += [
                remainder.eq(self.operands.payload.remainder if self.CONTINUES else 0),
                shifted.eq(self.operands.payload.dividend),
                divisor.eq(self.operands.payload.divisor),
            ]
        return m


class ContinuingDivider(IterativeDivider):
    """The lower digits of a division whose upper digits are known; otherwise as `IterativeDivider`.

    Members
    -------
    operands : In(stream of {dividend, divisor, remainder})
        Dividend, divisor, and the `remainder` of the upper digits, which is less than the divisor.
    """

    CONTINUES = True


class PipelinedDivider(Operator):
    """Quotient and remainder of two unsigned integers, one division per cycle.

    **Latency** `stages` cycles. **Throughput** one division per cycle. **Numerics** as
    `IterativeDivider`, division by zero included.

    Parameters
    ----------
    dividend_width : int
        Bits of dividend and quotient, 1 to 64; the array has one row per bit.
    divisor_width : int
        Bits of divisor and remainder, 1 to 64.
    stages : int
        Pipeline stages, spread over the rows; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    dividend, divisor : In
        The operands.
    quotient, remainder : Out
        Quotient and remainder of the operands.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, dividend_width: int, divisor_width: int, stages: int = 0, enable: bool = False
    ) -> None:
        _check(dividend_width, divisor_width)
        self.dividend_width = dividend_width
        self.divisor_width = divisor_width
        members = {
            "dividend": In(dividend_width),
            "divisor": In(divisor_width),
            "quotient": Out(dividend_width),
            "remainder": Out(divisor_width),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Build one row per digit, with a cut after each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=self.dividend_width)
        divisor: Value = self.divisor
        shifted: Value = self.dividend
        remainder: Value = Const(0, self.divisor_width)
        for _ in range(self.dividend_width):
            remainder, digit = restoring_step(remainder, shifted[-1], divisor)
            # Quotient digits replace dividend digits in one shift register, as in the iterative
            # divider.
            shifted = Cat(digit, shifted)[: self.dividend_width]
            remainder, shifted, divisor = pipeline.cut(remainder, shifted, divisor)
        m.d.comb += [self.quotient.eq(shifted), self.remainder.eq(remainder)]
        return m
