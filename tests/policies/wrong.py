"""H2O with a second source that evicts nothing: the fast form decides otherwise."""

import numpy as np
from numpy.typing import NDArray

from golden.policies.protocol import Attended
from golden.policies.scores import H2O


class Wrong(H2O):
    """H2O, whose second source keeps everything."""

    def second_source(self, scores: NDArray[np.floating]) -> Attended:
        """Return all tokens after each query."""
        return (np.arange(now + 1) for now in range(scores.shape[1]))


policy = Wrong()
