"""VEDA's voting (Section III, Figure 3)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from golden.policies.protocol import LONGEST, Attended, Hardware, Policy, Query, Unit
from golden.veda.voting.vote_threshold import ThresholdCoefficients
from golden.veda.voting.voting_engine import exact_votes
from golden.veda.voting.voting_policy import (
    Integers,
    Reals,
    Votes,
    VotingPolicy,
    head_votes,
    replay,
)
from hdl.parameters import require, require_range


@dataclass(frozen=True, kw_only=True)
class Voting(Policy):
    """Evict the token with the most votes of a layer's queries.

    A query head with probabilities s over l tokens votes against those below a/l - b*sigma. If this
    threshold is negative, it votes against the token with the smallest probability (the fallback).
    Ties resolve to the lowest slot; the new token is stored in the evicted slot. Importance is the
    number of votes, negated. Unlike the engine's, counts do not saturate.

    Parameters
    ----------
    a, b : float
        Weights of mean and standard deviation, not negative.
    reserved : int
        Number of first tokens of the text that do not vote (R).
    fallback : bool
        Whether a negative threshold causes one vote; otherwise it causes none.

    Raises
    ------
    ValueError
        If a value violates a rule above, or budget is below `reserved`.
    """

    unit: Unit = Unit.LAYER
    a: float = 1.0
    b: float = 0.2
    reserved: int = 32
    fallback: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require_range("reserved", self.reserved, 0, LONGEST)
        require(
            self.budget >= self.reserved,
            f"budget must be at least reserved = {self.reserved}",
            self.budget,
        )
        require(self.a >= 0, "a must not be negative", self.a)
        require(self.b >= 0, "b must not be negative", self.b)

    @property
    def exact(self) -> str | None:
        """The votes of the voting engine."""
        return "golden.veda.voting.voting_engine.exact_votes"

    @property
    def hardware(self) -> Hardware:
        """The voting engine, whose coefficients are inputs; the accelerator's are the paper's."""
        variables = {"TOP": "veda", "BUDGET": str(self.budget), "RESERVED": str(self.reserved)}
        if not self.fallback:
            variables["SET"] = "fallback=false"
        return Hardware(
            unit="voting_engine",
            settings={"threshold.fallback": self.fallback},
            accelerator=variables if (self.a, self.b) == (1.0, 0.2) else {},
        )

    def threshold(self, prob: Tensor) -> Tensor:
        """Return a/l - b*sigma of each head's probabilities, [..., 1]."""
        mean = 1 / prob.shape[-1]
        variance = prob.square().sum(-1, keepdim=True) * mean - mean * mean
        return self.a * mean - self.b * variance.clamp_(min=0).sqrt_()

    def votes(self, prob: Tensor) -> Tensor:
        """Return the slots against which each head votes."""
        limit = self.threshold(prob)
        votes = prob < limit
        if self.fallback:
            lowest = prob.argmin(-1, keepdim=True)
            votes.scatter_(-1, lowest, votes.gather(-1, lowest) | (limit < 0))
        return votes

    def score(self, importance: Tensor, query: Query) -> Tensor:
        """Count the votes of all heads, unless the query's token is reserved."""
        if query.now < self.reserved:
            return importance
        return importance - self.votes(query.prob).sum(2)

    def second_source(self, scores: NDArray[np.floating]) -> Attended:
        """Run `golden.veda.voting.voting_policy` in float64."""

        def votes(heads: Reals) -> Integers:
            own = [head_votes(head, a=self.a, b=self.b, fallback=self.fallback) for head in heads]
            return np.stack(own).sum(axis=0)

        return self._replayed(scores, votes)

    def exact_form(self, scores: NDArray[np.floating]) -> Attended | None:
        """Run the voting engine's model."""
        coefficients = ThresholdCoefficients(round(self.a * 4096), round(self.b * 4096))
        return self._replayed(scores, exact_votes(coefficients, fallback=self.fallback))

    def _replayed(self, scores: NDArray[np.floating], votes: Votes) -> Attended:
        tokens = scores.shape[1]
        prompt = self.prefill or self.budget
        if prompt > tokens:
            for now in range(tokens):
                yield np.arange(now + 1)
            return
        policy = VotingPolicy(
            prompt=prompt, target=min(self.budget, prompt), reserved=self.reserved
        )
        for step in replay(scores, policy, votes):
            yield np.sort(step.positions)
