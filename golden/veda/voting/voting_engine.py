"""Bit-exact model of the voting engine: one step, all heads of a layer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.veda.voting.vote_threshold import (
    PAPER,
    Outcome,
    ThresholdCoefficients,
    vote_threshold,
    votes,
)
from golden.veda.voting.voting_policy import Votes
from hdl.veda.voting.voting_parameters import VotingEngineParameters

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LayerStep:
    """The step of one token in one layer.

    Parameters
    ----------
    length : int
        Number of cached tokens, this one included.
    vote : bool
        Whether the heads' probabilities arrive.
    new_slot : int
        The token's slot, whose count starts at zero.
    evictions : int
        Number of victims to find.
    """

    length: int
    vote: bool
    new_slot: int
    evictions: int


@dataclass(frozen=True)
class Victim:
    """A victim, or the absence of one.

    Parameters
    ----------
    slot, votes : int
        The slot to evict, and its count; valid only with `found`.
    found : bool
        Whether there was a slot left to evict.
    """

    slot: int
    votes: int
    found: bool


@dataclass(frozen=True)
class LayerResult:
    """Result of a step.

    Parameters
    ----------
    outcomes : list[Outcome]
        Threshold, fallback and smallest element of each head.
    votes : numpy.ndarray
        int64 [length], votes of all heads against each slot.
    counts : numpy.ndarray
        int64 [length], the counts including these votes.
    sent : numpy.ndarray
        int64, the stream `counts_out`.
    victims : list[Victim]
        The victims, in order.
    """

    outcomes: list[Outcome]
    votes: Integers
    counts: Integers
    sent: Integers
    victims: list[Victim]


def to_codes(probabilities: NDArray[np.float64]) -> Integers:
    """Return the nearest FP16 codes."""
    return probabilities.astype(np.float16).view(np.uint16).astype(np.int64)


def exact_votes(coefficients: ThresholdCoefficients = PAPER, *, fallback: bool = True) -> Votes:
    """Return the engine's function from probabilities to votes, for `voting_policy.replay`."""

    def all_votes(probabilities: NDArray[np.float64]) -> Integers:
        codes = to_codes(probabilities)
        outcomes = [vote_threshold(head, coefficients, fallback=fallback) for head in codes]
        return np.stack([votes(*pair) for pair in zip(codes, outcomes, strict=True)]).sum(0)

    return all_votes


def process_step(
    step: LayerStep,
    codes: Integers,
    counts: Integers,
    p: VotingEngineParameters,
    coefficients: ThresholdCoefficients = PAPER,
) -> LayerResult:
    """Return the engine's result of one step.

    Parameters
    ----------
    step : LayerStep
        The step.
    codes : numpy.ndarray
        int64 [heads, length] FP16 codes of the probabilities; ignored without `vote`.
    counts : numpy.ndarray
        int64 [length], the layer's counts before the step.
    p : VotingEngineParameters
        Dimensions of the voting engine.
    coefficients : ThresholdCoefficients
        Coefficients of mean and deviation.
    """
    heads, fallback = codes if step.vote else codes[:0], p.threshold.fallback
    outcomes = [vote_threshold(head, coefficients, fallback=fallback) for head in heads]
    added = np.zeros(step.length, np.int64)
    for head, outcome in zip(heads, outcomes, strict=True):
        added += votes(head, outcome)
    before = np.where(np.arange(step.length) == step.new_slot, 0, counts)
    # Saturating once at the end equals saturating after each round of heads.
    updated = np.minimum(before + added, (1 << p.count_bits) - 1)
    victims, left = search(updated, step.evictions, p)
    sent = updated[left] if step.evictions > 1 else updated
    return LayerResult(outcomes, added, updated, sent, victims)


def search(
    counts: Integers, evictions: int, p: VotingEngineParameters
) -> tuple[list[Victim], NDArray[np.bool_]]:
    """Remove the slots with the most votes; ties resolve to the lowest slot.

    Returns
    -------
    tuple[list[Victim], numpy.ndarray]
        The victims by ascending slot, then those that were not found; and which slots remain.
    """
    left = np.ones(len(counts), bool)
    candidates = np.arange(p.reserved if p.protect_sink else 0, len(counts))
    # A stable sort: ties resolve to the lowest slot.
    most = candidates[np.argsort(-counts[candidates], kind="stable")][:evictions]
    left[most] = False
    victims = [Victim(int(slot), int(counts[slot]), True) for slot in np.sort(most)]
    return victims + [Victim(0, 0, False)] * (evictions - len(most)), left
