"""Paired differences of losses between lanes over the same tokens, with significance tests.

Adjacent tokens are not independent, so standard errors are computed over blocks of tokens. Holm's
procedure corrects the significance level for the number of comparisons in a study.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 33
"""Tokens per block; the mean difference of a block is one observation."""
LEVEL = 0.05
"""Family-wise error rate: probability of at least one false verdict in a study."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A paired difference of two lanes' losses.

    Parameters
    ----------
    name : str
        Name of the comparison.
    difference : float
        Mean loss of the second lane minus that of the first, in nats/token.
    error : float
        Standard error of the difference, over blocks, in nats/token.
    blocks : int
        Number of blocks.
    """

    name: str
    difference: float
    error: float
    blocks: int

    @property
    def probability(self) -> float:
        """Two-sided p-value of the difference."""
        if self.error == 0:
            return 1.0 if self.difference == 0 else 0.0
        return math.erfc(abs(self.difference) / self.error / math.sqrt(2))

    def shown(self) -> str:
        """Return the change of perplexity in percent, with its standard error, as text."""
        return f"{math.expm1(self.difference):+.2%} ± {self.error:.2%}"


def compared(name: str, first: np.ndarray, second: np.ndarray) -> Comparison:
    """Compare losses of the same tokens.

    Parameters
    ----------
    name : str
        Name of the comparison.
    first, second : numpy.ndarray
        Losses [windows, tokens].
    """
    difference = np.asarray(second) - np.asarray(first)
    size = min(BLOCK, difference.shape[1])
    whole = difference.shape[1] // size * size
    blocks = difference[:, :whole].reshape(-1, size).mean(1)
    error = blocks.std(ddof=1) / math.sqrt(blocks.size) if blocks.size > 1 else math.inf
    return Comparison(
        name=name, difference=float(difference.mean()), error=float(error), blocks=blocks.size
    )


def verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """Return for each comparison whether the first lane has the lower loss, by Holm's procedure.

    Returns
    -------
    list[str]
        ``"yes"``, ``"no"``, or ``"not measurable"`` if the difference is not significant.
    """
    order = sorted(range(len(comparisons)), key=lambda n: comparisons[n].probability)
    result = ["not measurable"] * len(comparisons)
    for rank, number in enumerate(order):
        comparison = comparisons[number]
        if comparison.probability > LEVEL / (len(comparisons) - rank):
            break
        result[number] = "yes" if comparison.difference > 0 else "no"
    return result


def decided(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, tuple[str, str]]:
    """Return for each named pair whether its first losses are lower, by one Holm procedure.

    Returns
    -------
    dict
        The verdict, and the change of perplexity of the second lane with its standard error.
    """
    comparisons = [compared(name, *losses) for name, losses in pairs.items()]
    return {
        comparison.name: (verdict, comparison.shown())
        for comparison, verdict in zip(comparisons, verdicts(comparisons), strict=True)
    }
