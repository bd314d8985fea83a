"""Order-preserving encoding of FP16 as unsigned integers."""

from amaranth.hdl import Mux, Value

from hdl.arith.float_format import BINARY16

SIGN = BINARY16.sign_mask


def ordered(code: Value) -> Value:
    """Return the integer of an FP16 code; equal for -0 and +0; NaNs are beyond all numbers."""
    # Codes of positive numbers ascend with the number; those of negative ones descend.
    negative = code[-1] & code[:-1].any()
    return Mux(negative, ~code, code[:-1] | SIGN)


def ordered_constant(code: int) -> int:
    """Return the integer of a constant."""
    return ~code & 0xFFFF if code > SIGN else code | SIGN


def is_nan(code: Value) -> Value:
    """Return whether an FP16 code is a NaN."""
    return code[:-1] > (BINARY16.infinity or 0)
