"""Model of the E4M3 quantiser, in float32 like the authors' algorithm."""

import numpy as np

from golden.arith.float_values import LARGEST
from golden.arith.fp8_e4m3 import quantise
from hdl.p3llm.quantisers.e4m3_quantiser import NAN_CODE


def finite_values(bits: np.ndarray) -> np.ndarray:
    """Return FP16 codes as float32; an infinity is 65504 of its sign, a NaN zero."""
    bits = np.asarray(bits).astype(np.int64)
    magnitude = bits & 0x7FFF
    limited = np.where(magnitude == LARGEST + 1, LARGEST, magnitude)
    finite = np.where(magnitude > LARGEST + 1, 0, limited | (bits & 0x8000))
    return finite.astype(np.uint16).view(np.float16).astype(np.float32)


def e4m3_quantiser(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E4M3 codes and FP16 scales of vectors.

    Parameters
    ----------
    vectors : numpy.ndarray
        FP16 codes, shape (..., elements).

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        Codes (uint8) of that shape, and the scales' FP16 codes (uint16) with an axis of length 1.
    """
    bits = np.asarray(vectors).astype(np.int64)
    codes, scales = quantise(finite_values(bits))
    nan = bits & 0x7FFF > LARGEST + 1
    codes = np.where(nan, NAN_CODE | (bits >> 8 & 0x80), codes)
    return codes.astype(np.uint8), scales.astype(np.float16).view(np.uint16)
