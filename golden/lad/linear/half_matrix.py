"""LAD's linear layers for whole models: the same sums as `linear`, a thousand times faster.

PyTorch multiplies and adds FP16 in float32 and rounds the result. Products are exact, and the 24
bits of float32 suffice for sums, so that the second rounding changes nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import QUIET_NAN
from golden.lad.linear.linear_module import sliced

Codes = NDArray[np.uint16]

ROWS = 4096
"""Rows that are multiplied together: their products fit into a core's cache."""


class HalfMatrix:
    """A matrix, stored slice by slice with all rows of a slice adjacent.

    Parameters
    ----------
    weights : array [rows, columns]
        FP16 codes.
    head_size : int
        Elements per slice.
    """

    def __init__(self, weights: Codes, head_size: int) -> None:
        import torch

        self.head_size = head_size
        self.parts: list[Any] = []
        for first in range(0, len(weights), ROWS):
            part = sliced(weights[first : first + ROWS], head_size).transpose(1, 2, 0)
            self.parts.append(torch.from_numpy(np.ascontiguousarray(part).view(np.float16)))

    def __call__(self, inputs: Codes) -> Codes:
        """Return sums [rows] of inputs [columns], FP16 codes."""
        import torch

        vector = torch.from_numpy(sliced(inputs, self.head_size).view(np.float16))
        sums = []
        for part in self.parts:
            total = torch.zeros(part.shape[-1], dtype=torch.float16)
            for rows, slice_ in zip(part, vector, strict=True):
                level = rows * slice_[:, None]
                # Adjacent pairs; a last one without a partner moves to the next level unchanged.
                while len(level) > 1:
                    pairs = len(level) // 2
                    added = level[0 : 2 * pairs : 2] + level[1 : 2 * pairs : 2]
                    level = torch.cat([added, level[2 * pairs :]]) if len(level) % 2 else added
                total = total + level[0]
            sums.append(total.numpy().view(np.uint16))
        found = np.concatenate(sums)
        return np.where(found & 0x7FFF > 0x7C00, QUIET_NAN, found).astype(np.uint16)
