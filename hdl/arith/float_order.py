"""Orders of floating-point codes: unsigned integers that compare as the numbers do.

Two orders are defined once for all units:

- the **total order** of IEEE 754-2019 (`totalOrder`): -0 is below +0, and NaNs are at both ends.
  Each code has a key of its own, so that the code can be computed from the key;
- the **number order**: -0 equals +0, and every NaN is below every number.
"""

from amaranth.hdl import Cat, Const, Mux, Value

from hdl.arith.float_format import FloatFormat, Specials
from hdl.parameters import require


def require_signed(name: str, number_format: FloatFormat) -> None:
    """Raise an error unless a format has a sign; the keys of `number_order` need one.

    Raises
    ------
    ValueError
        If the format is unsigned or no format.
    """
    signed = isinstance(number_format, FloatFormat) and number_format.signed
    require(signed, f"{name} must be a signed floating-point format", number_format)


def is_nan(number_format: FloatFormat, code: Value) -> Value:
    """Return whether a code is a NaN."""
    mantissa = code[: number_format.mantissa_bits]
    exponent = code[number_format.mantissa_bits :][: number_format.exponent_bits]
    match number_format.specials:
        case Specials.IEEE:
            return exponent.all() & mantissa.any()
        case Specials.NAN_ONLY:
            return exponent.all() & mantissa.all()
        case Specials.NONE:
            return Const(0, 1)


def total_order(code: Value) -> Value:
    """Return the key of a code of a signed format in the total order."""
    # Codes of positive numbers ascend with the number, those of negative ones descend. The
    # complement reverses them without a carry chain.
    return Cat(code[:-1] ^ code[-1].replicate(len(code) - 1), ~code[-1])


def total_order_code(key: Value) -> Value:
    """Return the code of a key of `total_order`."""
    return Cat(key[:-1] ^ (~key[-1]).replicate(len(key) - 1), ~key[-1])


def total_order_less(a: Value, b: Value) -> Value:
    """Return whether code `a` is below code `b` in the total order; arbitrary for equal codes.

    This is ``total_order(a) < total_order(b)`` with fewer gates.
    """
    below = a[:-1] < b[:-1]
    return Mux(a[-1] ^ b[-1], a[-1], below ^ a[-1])


def number_order(number_format: FloatFormat, code: Value) -> Value:
    """Return the key of a code of a signed format in the number order.

    The key of a NaN is 0. No number has this key, unless the format has no NaN.
    """
    negative = code[-1] & code[:-1].any()
    key = Cat(code[:-1] ^ negative.replicate(len(code) - 1), ~negative)
    return key & (~is_nan(number_format, code)).replicate(len(key))


def number_order_code(number_format: FloatFormat, key: Value) -> Value:
    """Return the code of a key of `number_order`: +0 for a zero, the quiet NaN for a NaN."""
    code = total_order_code(key)
    nan = number_format.quiet_nan
    return code if nan is None else Mux(key.any(), code, nan)


def number_order_key(number_format: FloatFormat, code: int) -> int:
    """Return the key of a constant in the number order."""
    if number_format.is_nan(code):
        return 0
    if code > number_format.sign_mask:
        return number_format.magnitude_mask - (code & number_format.magnitude_mask)
    return code | number_format.sign_mask
