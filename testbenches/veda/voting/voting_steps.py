"""Steps for the voting engine, replayed from a text or random, and their expected results."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients, vote_threshold
from golden.veda.voting.voting_engine import (
    Integers,
    LayerResult,
    LayerStep,
    process_step,
    to_codes,
)
from golden.veda.voting.voting_policy import VotingStep
from hdl.veda.voting.voting_parameters import VotingEngineParameters
from testbenches.packing import pack, to_integers
from testbenches.veda.voting.edge_heads import edge_heads

Work = tuple[LayerStep, Integers, Integers]
"""A step, its probabilities [heads, length] and the layer's counts before it [length]."""


@dataclass(frozen=True)
class StepTable:
    """Steps packed for the ports, and the model's results.

    Parameters
    ----------
    headers, probabilities, counts : list[int]
        Payloads of `steps`, `probabilities` and `counts_in`.
    results : list[LayerResult]
        One per step.
    coefficients : ThresholdCoefficients
        Coefficients a and b of the threshold.
    """

    headers: list[int]
    probabilities: list[int]
    counts: list[int]
    results: list[LayerResult]
    coefficients: ThresholdCoefficients

    @property
    def sent(self) -> Integers:
        """All counts that are output."""
        return np.concatenate([result.sent for result in self.results])

    @property
    def victims(self) -> Integers:
        """All victims, [slot, votes, found]; zeros for those that were not found."""
        victims = [victim for result in self.results for victim in result.victims]
        return np.array(
            [(victim.slot, victim.votes, victim.found) for victim in victims], np.int64
        ).reshape(-1, 3)


def usual_coefficients(p: VotingEngineParameters) -> ThresholdCoefficients:
    """Return the paper's coefficients; in a small cache, ones whose fallback a sink causes."""
    return PAPER if p.slots > 64 else ThresholdCoefficients(deviation=3277)


def tabulate(
    works: Iterable[Work],
    p: VotingEngineParameters,
    rng: np.random.Generator,
    coefficients: ThresholdCoefficients | None = None,
) -> StepTable:
    """Process steps with the model and pack them; lanes without a head carry noise."""
    kept = list(works)
    coefficients = coefficients or usual_coefficients(p)
    headers = {
        name: np.array([getattr(step, name) for step, _, _ in kept]).astype(np.int64)
        for name in ("length", "vote", "new_slot", "evictions")
    }
    beats: list[int] = []
    for step, codes, _counts in kept:
        if step.vote:
            beats += _beats(codes, p, rng)
    return StepTable(
        to_integers(pack(p.step_layout, headers)),
        beats,
        np.concatenate([counts for _, _, counts in kept]).tolist(),
        [process_step(step, codes, counts, p, coefficients) for step, codes, counts in kept],
        coefficients,
    )


def _beats(codes: Integers, p: VotingEngineParameters, rng: np.random.Generator) -> list[int]:
    """Pack the probabilities of all heads, `lanes` of them in each beat."""
    length = codes.shape[1]
    filled = rng.integers(0, 1 << 16, (p.rounds * p.lanes, length))
    filled[: p.heads] = codes
    values = filled.reshape(p.rounds, p.lanes, length).transpose(0, 2, 1).reshape(-1, p.lanes)
    fields = {"mantissa": values & 0x3FF, "exponent": values >> 10 & 0x1F, "sign": values >> 15}
    last = np.tile(np.arange(length) == length - 1, p.rounds).astype(np.int64)
    return to_integers(pack(p.beat_layout, {"values": fields, "last": last}))


def replayed(steps: Sequence[VotingStep], p: VotingEngineParameters) -> Iterator[Work]:
    """Return the steps of a replayed text; the new slot's previous count is noise."""
    for step in steps:
        length = len(step.positions)
        before = np.zeros(length, np.int64)
        before[: len(step.before)] = step.before
        before[step.slot] = (step.token * 7919) % (1 << p.count_bits)
        header = LayerStep(
            length=length, vote=step.vote, new_slot=step.slot, evictions=len(step.victims)
        )
        yield header, to_codes(step.probabilities), before


def random_codes(rng: np.random.Generator, heads: int, length: int) -> Integers:
    """Return random probabilities, each head in one of several styles.

    A few distinct values, which cause ties; one sink with nearly all of the sum, which makes the
    threshold negative; equal values, for a deviation of zero; any values below 2, for which the sum
    of squares saturates; NaNs, which are not a softmax; a softmax.
    """
    codes = np.zeros((heads, length), np.int64)
    for head in codes:
        style = rng.integers(6)
        if style == 0:
            head[:] = rng.choice([0, 1, 0x0400, 0x1400, 0x2C00], length)
        elif style == 1:
            weights = rng.random(length) * 10.0 ** -rng.integers(1, 7)
            weights[rng.integers(length)] = 1.0
            head[:] = to_codes(weights / weights.sum())
        elif style == 2:
            head[:] = to_codes(np.full(length, 1.0 / length))
        elif style == 3:
            head[:] = rng.integers(0, 0x4000, length)
        elif style == 4:
            head[:] = 0x7E00
        else:
            powers = np.exp(rng.normal(scale=2.0, size=length))
            head[:] = to_codes(powers / powers.sum())
    return codes


def threshold_codes(
    rng: np.random.Generator,
    p: VotingEngineParameters,
    length: int,
    coefficients: ThresholdCoefficients,
) -> Integers:
    """Return heads with an element at the threshold, which gets no vote, and one below, which does.

    An error in the last bit of the threshold then changes a vote. Changing an element moves the
    threshold by less than the element, so the iteration converges.
    """
    codes = np.zeros((p.heads, length), np.int64)
    for head in codes:
        powers = np.exp(rng.normal(scale=rng.uniform(0, 1.5), size=length))
        head[:] = to_codes(powers / powers.sum() * rng.uniform(0.5, 1.1))
        below, at = rng.permutation(length)[:2]
        for _ in range(30):
            threshold = vote_threshold(head, coefficients).threshold
            if (head[below], head[at]) == (threshold - 1, threshold):
                break
            head[below], head[at] = max(threshold - 1, 0), threshold
    return codes


def sink_codes(rng: np.random.Generator, p: VotingEngineParameters, length: int) -> Integers:
    """Return heads with a sink whose deviation, in units of the mean, is above a power of two.

    A root that lost its leading one would be small, and would not make the threshold negative.
    """
    codes = rng.integers(0, 0x0400, (p.heads, length))
    for head in codes:
        # The sum of squares stays below 2.
        most = int(np.log2(1.9 * length - 1) / 2 - 0.3)
        root = 2.0 ** rng.integers(0, most + 1) * rng.uniform(1, 1.2)
        head[rng.integers(length)] = to_codes(np.sqrt((root**2 + 1) / length))
    return codes


def edge_codes(
    rng: np.random.Generator,
    p: VotingEngineParameters,
    length: int,
    coefficients: ThresholdCoefficients,
) -> Integers:
    """Return heads at the edge of a threshold, where the last bit of a square decides."""
    pairs = [edge_heads(rng, length, coefficients) for _ in range(0, p.heads, 2)]
    return rng.permutation(np.concatenate(pairs))[: p.heads]


def threshold_work(rng: np.random.Generator, p: VotingEngineParameters, codes: Integers) -> Work:
    """Return a step with the given heads, and with counts that its votes do not saturate."""
    length = codes.shape[1]
    counts = rng.integers(0, max(1, (1 << p.count_bits) - p.heads), length)
    step = LayerStep(
        length=length, vote=True, new_slot=int(rng.integers(length)), evictions=int(rng.integers(2))
    )
    return step, codes, counts


def random_work(
    rng: np.random.Generator,
    p: VotingEngineParameters,
    *,
    length: int,
    vote: bool | None = None,
    evictions: int | None = None,
) -> Work:
    """Return one random step: counts with ties, at the end of their range, or of any value."""
    largest = (1 << p.count_bits) - 1
    counts = rng.integers(0, largest + 1, length)
    style = rng.integers(3)
    if style == 0:
        counts = rng.integers(0, 3, length)
    elif style == 1:
        counts = np.maximum(largest - rng.integers(0, 3, length), 0)
    if evictions is None:
        evictions = int(rng.choice([0, 1, 1, 2, min(5, length), min(length + 1, 12)]))
    step = LayerStep(
        length=length,
        vote=bool(rng.integers(4)) if vote is None else vote,
        new_slot=int(rng.integers(length)),
        evictions=min(evictions, p.slots),
    )
    return step, random_codes(rng, p.heads, length), counts
