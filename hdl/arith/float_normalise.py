"""Normalisation of subnormal operands, and the codes of FP16's special results."""

from amaranth.hdl import Value

from hdl.arith.float_format import BINARY16
from hdl.arith.float_unpack import Operand
from hdl.arith.leading_zeros import leading_zeros

INFINITY = BINARY16.max_finite + 1
"""The code of FP16 infinity."""

QUIET_NAN = INFINITY | 1 << (BINARY16.mantissa_bits - 1)
"""The code of the FP16 NaN that operators return."""


def normalised(operand: Operand) -> tuple[Value, Value]:
    """Return an operand's significand with its top bit 1, and its signed exponent code.

    The significand of a zero is 0 and its exponent is undefined.
    """
    if operand.normal:
        return operand.significand, operand.exponent
    # A count of all bits occurs only for zero, whose exponent is unused: omit the top bit.
    zeros = leading_zeros(operand.significand)[: (len(operand.significand) - 1).bit_length()]
    significand = (operand.significand << zeros)[: len(operand.significand)]
    return significand, operand.exponent - zeros
