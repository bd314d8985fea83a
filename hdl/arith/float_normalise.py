"""Subnormal operands in the form of the others, and the codes of FP16's special results."""

from amaranth.hdl import Value

from hdl.arith.float_format import BINARY16
from hdl.arith.float_unpack import Operand
from hdl.arith.leading_zeros import leading_zeros

INFINITY = BINARY16.max_finite + 1
"""The code of FP16's infinity."""

QUIET_NAN = INFINITY | 1 << (BINARY16.mantissa_bits - 1)
"""The code of the one FP16 NaN that operators return."""


def normalised(operand: Operand) -> tuple[Value, Value]:
    """Return an operand's significand with its leading bit 1, and its exponent code, signed.

    A zero has no leading one; its significand stays 0 and its exponent means nothing.
    """
    if operand.normal:
        return operand.significand, operand.exponent
    # A count of all bits means zero, whose exponent nobody reads: one bit less suffices.
    zeros = leading_zeros(operand.significand)[: (len(operand.significand) - 1).bit_length()]
    significand = (operand.significand << zeros)[: len(operand.significand)]
    return significand, operand.exponent - zeros
