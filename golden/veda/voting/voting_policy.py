"""The voting algorithm of the paper's Figure 3 in float64, and its replay over a captured text.

Section III. ``docs/veda/voting/voting_engine.md`` lists the decisions where the figure and the text
are not explicit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from hdl.parameters import require, require_range

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Votes = Callable[[Reals], Integers]
"""Function from one token's probabilities [heads, length] to the votes of all heads, [length]."""


def target_size(prompt: int, ratio: float, reserved: int = 32) -> int:
    """Return S, the number of cached tokens to keep of a prompt: Round(r * P), at least R."""
    return max(reserved, floor(ratio * prompt + 0.5))


def threshold(probabilities: Reals, *, a: float = 1.0, b: float = 0.2) -> float:
    """Return T = a * mean - b * deviation of one head's probabilities, whose sum is one."""
    mean = 1.0 / len(probabilities)
    variance = float(np.mean(probabilities**2)) - mean * mean
    return a * mean - b * float(np.sqrt(max(variance, 0.0)))


def head_votes(
    probabilities: Reals, *, a: float = 1.0, b: float = 0.2, fallback: bool = True
) -> NDArray[np.bool_]:
    """Return the tokens against which one head votes.

    All tokens strictly below the threshold; if it is negative, only the least probable token, where
    ties resolve to the lowest index, or no token without the `fallback`.
    """
    limit = threshold(probabilities, a=a, b=b)
    if limit < 0 and fallback:
        return np.arange(len(probabilities)) == np.argmin(probabilities)
    return probabilities < limit


def float_votes(probabilities: Reals) -> Integers:
    """Return the votes of all heads with the paper's coefficients, in float64."""
    return np.stack([head_votes(head) for head in probabilities]).sum(axis=0)


@dataclass(frozen=True, kw_only=True)
class VotingPolicy:
    """Parameters of the algorithm: prompt, cache size, and voters.

    Parameters
    ----------
    prompt : int
        Tokens of the prompt (P).
    target : int
        Tokens that remain cached between generated tokens (S), 1 to `prompt`.
    reserved : int
        First tokens that cast no votes (R).
    largest : int
        Value at which counts saturate.
    protected : int
        First slots that are never victims.

    Raises
    ------
    ValueError
        If the target is out of range.
    """

    prompt: int
    target: int
    reserved: int = 32
    largest: int = 65535
    protected: int = 0

    def __post_init__(self) -> None:
        """Check the rules."""
        require_range("target", self.target, 1, self.prompt)


@dataclass(frozen=True)
class VotingStep:
    """One token in one layer.

    Parameters
    ----------
    token : int
        The token's index.
    positions : numpy.ndarray
        int64 [length], the token in each slot, this one included.
    slot : int
        This token's slot.
    vote : bool
        Whether the token votes.
    probabilities : numpy.ndarray
        float64 [heads, length].
    before, counts : numpy.ndarray
        int64 [length], the counts before the token (any value in its own slot) and after it.
    victims : list[int]
        Slots to evict, ascending.
    """

    token: int
    positions: Integers
    slot: int
    vote: bool
    probabilities: Reals
    before: Integers
    counts: Integers
    victims: list[int]


def replay(
    scores: NDArray[np.floating], policy: VotingPolicy, votes: Votes = float_votes
) -> Iterator[VotingStep]:
    """Execute the algorithm over a captured text; every token after the prompt is a generated one.

    At the prompt's last token the cache is trimmed to the target size: the slots with the most
    votes are removed, and the remaining ones are compacted. From then on every token evicts one
    token, whose slot the next token takes.

    Parameters
    ----------
    scores : numpy.ndarray
        float [heads, tokens, tokens], raw scores; row n contains the scores of query n for each
        key.
    policy : VotingPolicy
        Prompt, target, reserved length.
    votes : Votes
        Function from probabilities to votes.

    Yields
    ------
    VotingStep
        One per token.

    Raises
    ------
    ValueError
        If the text is shorter than the prompt.
    """
    tokens = scores.shape[1]
    require(policy.prompt <= tokens, f"prompt must be at most the text's {tokens}", policy.prompt)
    positions, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    free: int | None = None
    for token in range(tokens):
        if free is None:
            slot = len(positions)
            positions, counts = np.append(positions, token), np.append(counts, 0)
        else:
            slot = free
            positions = positions.copy()
            positions[slot] = token
        before = counts
        counts = np.where(np.arange(len(counts)) == slot, 0, counts)
        probabilities = softmax(scores[:, token, positions])
        vote = token >= policy.reserved
        if vote:
            counts = np.minimum(counts + votes(probabilities), policy.largest)
        excess = 0
        if token == policy.prompt - 1:
            excess = policy.prompt - policy.target
        elif token >= policy.prompt:
            excess = 1
        # A stable sort: ties resolve to the lowest slot.
        ranked = np.argsort(-counts, kind="stable")
        victims = np.sort(ranked[ranked >= policy.protected][:excess]).tolist()
        yield VotingStep(token, positions, slot, vote, probabilities, before, counts, victims)
        if excess > 1:
            positions, counts = np.delete(positions, victims), np.delete(counts, victims)
        free = victims[0] if excess == 1 else None


def softmax(scores: NDArray[np.floating]) -> Reals:
    """Return the softmax of each row in float64."""
    powers = np.asarray(scores, np.float64)
    powers = np.exp(powers - powers.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
