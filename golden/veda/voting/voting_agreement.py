"""Agreement of the engine's votes with the algorithm's.

Each arithmetic processes the same captured text on its own history, as an accelerator would.
"""

from dataclasses import dataclass

import numpy as np

from golden.llm import open_trace
from golden.veda.voting.voting_engine import exact_votes
from golden.veda.voting.voting_policy import (
    Votes,
    VotingPolicy,
    VotingStep,
    float_votes,
    head_votes,
    replay,
    threshold,
)
from hdl.veda.voting.voting_parameters import VotingEngineParameters

LAYERS = (0, 14, 29)
TOKENS = 640
"""Tokens of the text: a prompt as long as SmolLM2's preset has slots, and generated tokens."""


@dataclass(frozen=True)
class Agreement:
    """Agreement as shares from 0 to 1, over all layers.

    Parameters
    ----------
    prompt_fallbacks, fallbacks : float
        Heads of voting tokens whose threshold is negative: in the prompt, and after it.
    votes : float
        Votes that are equal in float64 and in the engine, on the history of float64.
    trimmed : float
        Tokens of the prompt that both evict, relative to those that one evicts.
    same_victim : float
        Generated tokens at which both evict the same token, from the history of float64.
    same_step : float
        The same, each on its own history.
    survivors : float
        Tokens that both hold at the end.
    """

    prompt_fallbacks: float
    fallbacks: float
    votes: float
    trimmed: float
    same_victim: float
    same_step: float
    survivors: float

    def lines(self) -> list[str]:
        """Return the rows of the table in the documentation."""
        rows = [
            ("heads that take the fallback, prompt (33 to 512 tokens)", self.prompt_fallbacks),
            ("heads that take the fallback, generation (257 tokens)", self.fallbacks),
            ("bit-exact against float64: same vote for a slot", self.votes),
            ("bit-exact against float64: evicted at the prompt's end in common", self.trimmed),
            ("bit-exact against float64: same victim from the same history", self.same_victim),
            ("bit-exact against float64: same victim, each on its own history", self.same_step),
            ("bit-exact against float64: cached in common at the end", self.survivors),
        ]
        return [f"| {what} | {share:.1%} |" for what, share in rows]


def agreement(p: VotingEngineParameters) -> Agreement:
    """Measure SmolLM2: three layers, all heads, a prompt of `slots` tokens trimmed to half."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    tallies = []
    for layer in LAYERS:
        heads = [trace.attention_trace(layer, head).scores for head in range(trace.heads)]
        tallies.append(_one_layer(np.stack(heads), p))
    return Agreement(*(float(share) for share in np.mean(tallies, axis=0)))


def _one_layer(scores: np.ndarray, p: VotingEngineParameters) -> list[float]:
    """Return the shares of one layer, in the order of `Agreement`."""
    policy = VotingPolicy(prompt=p.slots, target=p.slots // 2, reserved=p.reserved)
    engine = exact_votes()
    truth = list(replay(scores, policy, float_votes))
    exact = list(replay(scores, policy, engine))
    voters = [step for step in truth if step.vote]
    last = policy.prompt - 1
    fallbacks = [np.mean([threshold(head) < 0 for head in step.probabilities]) for step in voters]
    generated = policy.prompt - policy.reserved
    return [
        float(np.mean(fallbacks[:generated])),
        float(np.mean(fallbacks[generated:])),
        float(np.mean([_same_votes(step, engine) for step in voters])),
        _common(_evicted(truth[last]), _evicted(exact[last])),
        float(np.mean([_same_victim(step, engine) for step in truth[last + 1 :]])),
        float(
            np.mean(
                [
                    _evicted(one) == _evicted(other)
                    for one, other in zip(truth[last + 1 :], exact[last + 1 :], strict=True)
                ]
            )
        ),
        _common(set(truth[-1].positions.tolist()), set(exact[-1].positions.tolist())),
    ]


def _same_votes(step: VotingStep, engine: Votes) -> float:
    """Compare head by head, since sums may hide differences."""
    pairs = [(head_votes(head), engine(head[np.newaxis])) for head in step.probabilities]
    return float(np.mean([np.mean(one == other) for one, other in pairs]))


def _same_victim(step: VotingStep, engine: Votes) -> bool:
    """Compare the victims when the engine votes on the counts of float64."""
    before = np.where(np.arange(len(step.counts)) == step.slot, 0, step.before)
    counts = before + engine(step.probabilities)
    return int(np.argmax(counts)) == step.victims[0]


def _evicted(step: VotingStep) -> set[int]:
    """Return tokens, not slots: after one difference the slots no longer correspond."""
    return set(step.positions[step.victims].tolist())


def _common(one: set[int], other: set[int]) -> float:
    return len(one & other) / len(one)
