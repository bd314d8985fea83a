"""Model of the conversion of binary32 to Q6.10."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_to_fixed import float_to_fixed
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION

Codes = NDArray[np.int64]


def fixed_lanes(values: Codes) -> Codes:
    """Return Q6.10 integers of binary32 codes."""
    return float_to_fixed(values.astype(np.uint32).view(np.float32), FIXED_FRACTION)
