"""Agreement of a policy's fast form with its bit-exact form on captured scores.

`python -m golden.policies.agreement` prints the table of `docs/policies.md`. Each form decides on
its own history, as an accelerator and a float model would.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from golden.llm import Trace, open_trace
from golden.policies.cache import Cache
from golden.policies.protocol import CachePolicy, Policy, Query, Unit
from golden.policies.scores import Aerp, Source, TrackedAerp
from golden.policies.voting import Voting
from golden.veda.voting.vote_threshold import vote_threshold, votes
from golden.veda.voting.voting_engine import to_codes

LAYERS = (0, 14, 29)
TOKENS, BUDGET = 640, 128
Positions = NDArray[np.int64]
POLICIES: dict[str, Policy] = {
    "voting": Voting(budget=BUDGET),
    "voting_without_fallback": Voting(budget=BUDGET, fallback=False),
    "aerp_integers": Aerp(budget=BUDGET, source=Source.INTEGER),
    "aerp_centred": TrackedAerp(budget=BUDGET, source=Source.CENTRED),
}
"""The policies that have a bit-exact form."""


@dataclass(frozen=True)
class Agreement:
    """Decisions of two forms of a policy on the same scores.

    Parameters
    ----------
    evictions : int
        Steps in which the first form evicts a token.
    same : int
        Those of the steps in which both evict the same token, each on its own history.
    cached, common : int
        Tokens that the last query attends to, and those to which both attend.
    """

    evictions: int
    same: int
    cached: int
    common: int

    def __add__(self, other: "Agreement") -> "Agreement":
        """Add the counts of other scores."""
        return Agreement(
            self.evictions + other.evictions,
            self.same + other.same,
            self.cached + other.cached,
            self.common + other.common,
        )

    @property
    def share(self) -> str:
        """The evictions that are the same, of all, for a table."""
        return f"{self.same:,} of {self.evictions:,}"

    @property
    def equal(self) -> bool:
        """Whether all decisions are the same."""
        return (self.same, self.common) == (self.evictions, self.cached)


NOTHING = Agreement(0, 0, 0, 0)


def compare(one: Iterable[Positions], other: Iterable[Positions]) -> Agreement:
    """Compare two forms by the positions that each query attends to."""
    evictions = same = 0
    before: tuple[Positions, Positions] | None = None
    for pair in zip(one, other, strict=True):
        if before:
            ours, theirs = (np.setdiff1d(old, new) for old, new in zip(before, pair, strict=True))
            evictions += len(ours) > 0
            same += len(ours) > 0 and np.array_equal(ours, theirs)
        before = pair
    assert before is not None
    return Agreement(evictions, same, len(before[0]), len(np.intersect1d(*before)))


def attended(
    policy: CachePolicy, scores: NDArray[np.floating], dtype: torch.dtype
) -> Iterable[Positions]:
    """Run the fast form on the scores of one cache; see `Policy.second_source`."""
    tokens = scores.shape[1]
    cache = Cache(policy, 1, 1, tokens)
    given = torch.tensor(np.asarray(scores)).to(dtype)
    for now in range(tokens):
        positions = cache.arrive(now)
        yield np.sort(positions[0, 0].numpy())
        raw = given[:, now, positions[0, 0]][None, None]
        cache.step(Query(now, positions, raw, raw.softmax(-1)))


def scores_of(trace: Trace, layer: int, unit: Unit) -> Iterable[NDArray[np.float32]]:
    """Yield the scores of each cache of a layer, [query heads, tokens, tokens]."""
    heads = [trace.attention_trace(layer, head).scores for head in range(trace.heads)]
    yield from np.split(np.stack(heads), unit.caches(trace.heads, trace.kv_heads))


def agreement(policy: Policy, layers: Sequence[int], tokens: int) -> Agreement:
    """Compare the fast form in float32 with the bit-exact form on SmolLM2."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    total = NOTHING
    for layer in layers:
        for scores in scores_of(trace, layer, policy.unit):
            scores = scores[:, :tokens, :tokens]
            exact = policy.exact_form(scores)
            assert exact is not None
            total += compare(attended(policy, scores, torch.float32), exact)
    return total


@dataclass
class VoteDifferences:
    """Votes of single heads that differ between fast and bit-exact form, by their reason.

    Parameters
    ----------
    votes : int
        Votes compared: one per head and slot.
    rounded : int
        Votes that differ because FP16 puts a probability on the other side of the threshold.
    tied : int
        Votes that differ because FP16 has several smallest probabilities, and the fallback votes
        against the first of them.
    sign : int
        Votes that differ because only one form has a threshold below zero.
    nearest : float
        Largest distance of a probability from the threshold among `rounded`, times the number of
        tokens, so that the mean probability is 1.
    closest : float
        Largest distance of a threshold from zero among `sign`, times the number of tokens.
    """

    votes: int = 0
    rounded: int = 0
    tied: int = 0
    sign: int = 0
    nearest: float = 0.0
    closest: float = 0.0

    def add(self, policy: Voting, probabilities: NDArray[np.float64]) -> None:
        """Compare the votes of all heads [heads, tokens] of one query."""
        prob = torch.from_numpy(probabilities.astype(np.float32))
        limits = policy.threshold(prob)[:, 0].tolist()
        fast = policy.votes(prob).numpy()
        for own, limit, head in zip(fast, limits, probabilities, strict=True):
            codes = to_codes(head)
            outcome = vote_threshold(codes, fallback=policy.fallback)
            theirs = votes(codes, outcome)
            self.votes += len(head)
            differing = np.flatnonzero(own != theirs)
            if not len(differing):
                continue
            if policy.fallback and (limit < 0) != outcome.fallback:
                self.sign += len(differing)
                self.closest = max(self.closest, abs(limit) * len(head))
            elif outcome.fallback:
                # Rounding keeps the order, so that both votes are against a smallest code.
                assert len(set(codes[differing].tolist())) == 1
                self.tied += len(differing)
            else:
                self.rounded += len(differing)
                far = np.abs(head[differing] - limit).max() * len(head)
                self.nearest = max(self.nearest, float(far))


def vote_differences(policy: Voting, layers: Sequence[int], tokens: int) -> VoteDifferences:
    """Count the differing votes of single heads, on the history of the bit-exact form."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    found = VoteDifferences()
    for layer in layers:
        (scores,) = scores_of(trace, layer, policy.unit)
        scores = scores[:, :tokens, :tokens]
        exact = policy.exact_form(scores)
        assert exact is not None
        for now, positions in enumerate(exact):
            if now >= policy.reserved:
                raw = scores[:, now, positions].astype(np.float64)
                powers = np.exp(raw - raw.max(1, keepdims=True))
                found.add(policy, powers / powers.sum(1, keepdims=True))
    return found


def row(name: str, found: Agreement) -> str:
    """Return the row of a policy in the table of the page."""
    return (
        f"| `{name}` | {found.evictions:,} | {found.same:,} ({found.same / found.evictions:.1%}) "
        f"| {found.common:,} of {found.cached:,} |"
    )


def main() -> None:
    """Print the tables of the page."""
    print("| policy | evictions | same token evicted | cached in common at the end |")
    print("|---|---|---|---|")
    for name, policy in POLICIES.items():
        print(row(name, agreement(policy, LAYERS, TOKENS)), flush=True)
    for name, policy in POLICIES.items():
        if isinstance(policy, Voting):
            print(name, vote_differences(policy, LAYERS, TOKENS), flush=True)


if __name__ == "__main__":
    main()
