"""Differences of losses between lanes over the same tokens, and which of many can be decided.

Neighbouring tokens are not independent, so standard errors are taken over blocks of them; where a
study makes many comparisons at once, each must be the surer (Holm).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 33
"""Tokens whose mean difference counts as one observation."""
LEVEL = 0.05
"""Probability that any of the verdicts on differences that do not exist is one at all."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A paired difference of two lanes' losses.

    Parameters
    ----------
    name : str
        What is compared.
    difference : float
        Mean loss of the second lane less that of the first, in nats a token.
    error : float
        Its standard error, over blocks.
    blocks : int
        How many there are.
    """

    name: str
    difference: float
    error: float
    blocks: int

    @property
    def probability(self) -> float:
        """Probability of as large a difference, of either sign, if there were none."""
        if self.error == 0:
            return 1.0 if self.difference == 0 else 0.0
        return math.erfc(abs(self.difference) / self.error / math.sqrt(2))

    def shown(self) -> str:
        """Write the change of perplexity in percent, and its standard error."""
        return f"{math.expm1(self.difference):+.2%} ± {self.error:.2%}"


def compared(name: str, first: np.ndarray, second: np.ndarray) -> Comparison:
    """Compare losses of the same tokens.

    Parameters
    ----------
    name : str
        What is compared.
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
    """Return for each comparison whether the first lane loses less, by Holm's procedure.

    Returns
    -------
    list[str]
        ``"yes"``, ``"no"``, or ``"not measurable"`` where the difference may be none.
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
    """Return for each named pair whether its first losses are lower, all decided together.

    Returns
    -------
    dict
        The verdict, and the second's change of perplexity with its standard error.
    """
    comparisons = [compared(name, *losses) for name, losses in pairs.items()]
    return {
        comparison.name: (verdict, comparison.shown())
        for comparison, verdict in zip(comparisons, verdicts(comparisons), strict=True)
    }
