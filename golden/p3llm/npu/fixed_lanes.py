"""Binary32 as Q6.10: the model."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_to_fixed import float_to_fixed
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION

Codes = NDArray[np.int64]


def fixed_lanes(values: Codes) -> Codes:
    """Return integers of codes of binary32."""
    return float_to_fixed(values.astype(np.uint32).view(np.float32), FIXED_FRACTION)
