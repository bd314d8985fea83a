"""Model of the S0E4M4 quantiser of probabilities."""

import numpy as np

from golden.arith.fp8_s0e4m4 import encode
from hdl.p3llm.quantisers.probability_quantiser import ProbabilityQuantiserParameters


def probability_quantiser(
    probabilities: np.ndarray, p: ProbabilityQuantiserParameters
) -> np.ndarray:
    """Return S0E4M4 codes (uint8) of FP16 codes."""
    return encode(probabilities, p.round)
