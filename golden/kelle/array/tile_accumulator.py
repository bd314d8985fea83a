"""Bit-exact model of the accumulators below the systolic array, all lanes at once."""

import numpy as np
from numpy.typing import NDArray

from hdl.kelle.array.tile_accumulator import TileAccumulatorParameters

Integers = NDArray[np.int64]


class TileAccumulatorModel:
    """Accumulators of every lane and vector.

    Parameters
    ----------
    parameters : TileAccumulatorParameters
        Bits of sums and accumulators, and the number of vectors.
    lanes : int
        Number of lanes.
    """

    def __init__(self, parameters: TileAccumulatorParameters, lanes: int) -> None:
        self.parameters = parameters
        self._totals = np.zeros((parameters.vectors, lanes), np.int64)

    def add(
        self,
        sums: Integers,
        *,
        index: int,
        first: bool,
        high: bool,
        bias: Integers | int = 0,
    ) -> Integers:
        """Add one vector's sums to its accumulators and return them, wrapped to their width."""
        start = np.broadcast_to(bias, sums.shape) if first else self._totals[index]
        wrap = 64 - self.parameters.width
        self._totals[index] = (start + (sums << 8 * high)) << wrap >> wrap
        return self._totals[index].copy()
