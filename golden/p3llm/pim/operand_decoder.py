"""Model of P3-LLM's operand decoders, from the definitions of the formats (Section IV)."""

import numpy as np

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int4_asym
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode


def input_operands(
    mode: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return significands, shifts and NaN flags of 8-bit inputs; the mode is broadcast."""
    probability = np.asarray(mode) == Mode.PV.value
    significand, shift, nan = fp8_e4m3.operand(codes)
    unsigned_significand, unsigned_shift = fp8_s0e4m4.operand(codes)
    return (
        np.where(probability, unsigned_significand, significand).astype(np.int64),
        np.where(probability, unsigned_shift, shift).astype(np.int64),
        nan & ~probability,
    )


def weight_operands(mode: np.ndarray, codes: np.ndarray, group_bits: np.ndarray) -> np.ndarray:
    """Return the integers of 4-bit codes: half-units, or code minus zero point."""
    half_units = bitmod_fp4.decode(codes, np.asarray(group_bits) & 3)
    return np.where(
        np.asarray(mode) == Mode.LINEAR.value, half_units, int4_asym.operand(codes, group_bits)
    ).astype(np.int64)


def real(mode: Mode, sums: np.ndarray) -> np.ndarray:
    """Return the values of integer sums before any scale, in float64; exact below ``2**53``."""
    return np.ldexp(np.asarray(sums, np.float64), -FRACTION_BITS[mode])
