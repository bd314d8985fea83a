"""Model of the INT4 quantiser, in float32 like the authors' algorithm."""

import numpy as np

from golden.arith.int4_asym import quantise
from golden.p3llm.quantisers.e4m3_quantiser import finite_values


def int4_quantiser(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return INT4 codes, zero points and FP16 scales of vectors.

    Parameters
    ----------
    vectors : numpy.ndarray
        FP16 codes, shape (..., elements).

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]
        Codes (uint8) of that shape, zero points (uint8) and the scales' FP16 codes (uint16), both
        with an axis of length 1.
    """
    groups = quantise(finite_values(vectors))
    scales = groups.scales.astype(np.float16).view(np.uint16)
    return groups.codes, groups.zero_points, scales
