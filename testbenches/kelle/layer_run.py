"""Results of a step of one layer of Kelle."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.kelle.eviction.eviction_controller import Placement
from golden.kelle.kelle import Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerRun:
    """Results of a step of one layer.

    Members
    -------
    output, normalised : numpy.ndarray
        int64 [width]: the layer's output state, and the attention block's input.
    placements : list[Placement]
        Placement of the arriving token, by head.
    store : tuple[int, int] | None
        Position and vector of a token that became popular, where the accelerator shows it.
    cycles : numpy.ndarray | None
        Cycle of each slice of the output, if known.
    """

    output: Integers
    normalised: Integers
    placements: list[Placement]
    store: tuple[int, int] | None = None
    cycles: NDArray[np.int64] | None = None
