"""FP16 codes as integers that are ordered as the numbers are."""

from amaranth.hdl import Mux, Value

from hdl.arith.float_format import BINARY16

SIGN = BINARY16.sign_mask


def ordered(code: Value) -> Value:
    """Return an integer for an FP16 code, -0 and +0 alike; a NaN's is beyond all others'."""
    # Codes of one sign are ordered as integers; those of the other run the other way.
    negative = code[-1] & code[:-1].any()
    return Mux(negative, ~code, code[:-1] | SIGN)


def ordered_constant(code: int) -> int:
    """Return the same of a constant."""
    return ~code & 0xFFFF if code > SIGN else code | SIGN


def is_nan(code: Value) -> Value:
    """Return whether an FP16 code is a NaN."""
    return code[:-1] > (BINARY16.infinity or 0)
