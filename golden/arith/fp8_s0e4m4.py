"""FP8 S0E4M4 codes, the model of `hdl.arith.fp8_s0e4m4`."""

import numpy as np

from golden.arith.rounding import rounded_right
from hdl.arith.float_format import FP8_S0E4M4
from hdl.arith.fp8_s0e4m4 import Round


def encode(bits: np.ndarray, round: Round = Round.HALF_UP) -> np.ndarray:
    """Return S0E4M4 codes (uint8) of FP16 codes.

    Codes of non-negative FP16 numbers have the order of their values, so rounding the code rounds
    the value. Results beyond 0xFF become 0xFF; negative inputs give 0.
    """
    bits = np.asarray(bits).astype(np.int64)
    code = np.minimum(rounded_right(bits, 6, round.value), FP8_S0E4M4.max_finite)
    return np.where(bits >> 15, 0, code).astype(np.uint8)


def decode(codes: np.ndarray) -> np.ndarray:
    """Return FP16 codes (uint16) of S0E4M4 codes: the same bits, with six zeros appended below."""
    return (np.asarray(codes).astype(np.uint16) << 6).astype(np.uint16)


def operand(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return significands and shifts: ``value = significand * 2**(shift - 18)``."""
    codes = np.asarray(codes).astype(np.int64)
    exponent = codes >> 4
    return (codes & 15) + np.where(exponent > 0, 16, 0), np.maximum(exponent, 1) - 1
