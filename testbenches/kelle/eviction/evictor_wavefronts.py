"""Wavefronts for the systolic evictor, from decode steps or random, and their expected results."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from golden.kelle.eviction.aerp import EMPTY, AerpParameters, DecodeStep
from golden.kelle.eviction.systolic_evictor import (
    Integers,
    SystolicEvictorModel,
    Victim,
    Wavefront,
    quantise_scores,
)
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from testbenches.packing import Bits, pack


@dataclass(frozen=True)
class WavefrontTable:
    """Wavefronts packed for the ports, and the model's results for them.

    Parameters
    ----------
    headers : list[int]
        Payloads of the stream `wavefronts`.
    lanes : numpy.ndarray
        Bits [wavefronts, rows, lane].
    updates : numpy.ndarray
        int64 [wavefronts, rows], the column S after each wavefront.
    victims : list[Victim]
        Victims in the order of their searches.
    last : list[int]
        Numbers of the wavefronts that end a search.
    """

    headers: list[int]
    lanes: Bits
    updates: Integers
    victims: list[Victim]
    last: list[int] = field(default_factory=list)


def tabulate(wavefronts: Iterable[Wavefront], p: SystolicEvictorParameters) -> WavefrontTable:
    """Run wavefronts through the model and pack them."""
    model = SystolicEvictorModel(p)
    kept = list(wavefronts)
    updates, victims, last = [], [], []
    for number, wavefront in enumerate(kept):
        column, victim = model.process(wavefront)
        updates.append(column)
        if victim is not None:
            victims.append(victim)
            last.append(number)
    lanes = pack(
        p.lane_layout,
        {
            "score": np.array([wavefront.scores for wavefront in kept]),
            "importance": np.array([wavefront.importance for wavefront in kept]),
            "valid": np.array([wavefront.valid for wavefront in kept]),
            "protect": np.array([wavefront.protect for wavefront in kept]),
        },
    )
    flags = np.array([(one.load, one.compare, one.last, one.halve and p.halves) for one in kept])
    headers = (flags @ [1, 2, 4, 8]).tolist()
    return WavefrontTable(headers, lanes, np.array(updates), victims, last)


def step_wavefronts(step: DecodeStep, p: SystolicEvictorParameters) -> Iterator[Wavefront]:
    """Convert one decode step to wavefronts: the search over all tiles, then the arriving token.

    The arriving token's slot is presented as an empty slot, so that it starts from zero.
    """
    valid = step.positions != EMPTY
    scores = quantise_scores(step.scores, p)
    own = quantise_scores(step.own_scores, p)
    heads = len(scores)
    for tile in range(0, p.slots, p.rows):
        rows = slice(tile, tile + p.rows)
        for head in range(heads):
            yield Wavefront(
                load=head == 0,
                compare=head == heads - 1,
                last=head == heads - 1 and tile + p.rows == p.slots,
                halve=step.halve,
                scores=scores[head, rows],
                importance=step.importance[rows],
                valid=valid[rows],
                protect=step.protect[rows],
            )
    arriving = np.arange(p.rows) == step.slot % p.rows
    for head in range(heads):
        yield Wavefront(
            load=head == 0,
            compare=False,
            last=False,
            halve=False,
            scores=np.where(arriving, own[head], 0),
            importance=np.zeros(p.rows, np.int64),
            valid=np.zeros(p.rows, bool),
            protect=np.zeros(p.rows, bool),
        )


def policy_for(p: SystolicEvictorParameters) -> AerpParameters:
    """Return a policy with half of the slots for the recent window, and ten sinks, as in the paper.

    At least one slot remains for other tokens.
    """
    sinks = 10 if p.slots >= 64 else min(1, p.slots // 2 - 1)
    return AerpParameters(budget=p.slots, window=p.slots // 2, sinks=sinks)


def random_wavefronts(
    rng: np.random.Generator, p: SystolicEvictorParameters, searches: int
) -> Iterator[Wavefront]:
    """Generate searches with cases that are rare in real scores.

    Few distinct values, so that ties are frequent; extremes, so that sums saturate; tiles without a
    candidate; one to three query heads; searches of one tile and of all tiles.
    """
    low, high = (
        (-(1 << p.input_width - 1), (1 << p.input_width - 1) - 1)
        if p.input_shape.signed
        else (0, (1 << p.input_width) - 1)
    )
    bound = 1 << p.score_width - 1
    for _ in range(searches):
        tiles = rng.choice([1, 2, p.slots // p.rows])
        heads = rng.integers(1, 4)
        style = rng.integers(4)
        for tile in range(min(tiles, p.slots // p.rows)):
            importance = rng.integers(-bound, bound, p.rows)
            if style == 0:
                importance = rng.choice([-1, 0, 1], p.rows)
            elif style == 1:
                importance = rng.choice([-bound, bound - 1, 0], p.rows)
            chance = rng.choice([0.0, 0.1, 0.9])
            valid, protect = rng.random(p.rows) > 1 - chance, rng.random(p.rows) < 0.3
            for head in range(heads):
                scores = rng.integers(low, high + 1, p.rows)
                if style == 0:
                    scores = rng.choice([low, 0, 1 << p.shift, high], p.rows)
                yield Wavefront(
                    load=head == 0,
                    compare=head == heads - 1,
                    last=head == heads - 1 and tile == min(tiles, p.slots // p.rows) - 1,
                    halve=p.halves and bool(rng.integers(2)),
                    scores=scores,
                    importance=importance,
                    valid=valid,
                    protect=protect,
                )


def single_saturations(
    rng: np.random.Generator, p: SystolicEvictorParameters
) -> Iterator[Wavefront]:
    """Generate searches over all tiles in which one wavefront of one token saturates.

    Every row and every tile occurs, at either end that the scores can reach, in the first or the
    last of two wavefronts. A search without saturation follows each of them.
    """
    tiles, bound = p.slots // p.rows, 1 << p.score_width - 1
    low, high = (
        (-(1 << p.input_width - 1), (1 << p.input_width - 1) - 1)
        if p.input_shape.signed
        else (0, (1 << p.input_width) - 1)
    )
    ends = [(e, s) for e, s in ((-bound, low), (bound - 1, high)) if s >> p.shift]
    places = [(int(rng.integers(tiles)), row) for row in range(p.rows)]
    places += [(tile, int(rng.integers(p.rows))) for tile in range(tiles)]
    nowhere = (tiles, 0)
    for place in (place for drawn in places for place in (drawn, nowhere)):
        end, extreme = ends[rng.integers(len(ends))]
        when = rng.integers(2)
        for tile in range(tiles):
            leaves = (np.arange(p.rows) == place[1]) & (tile == place[0])
            importance = rng.integers(-bound // 2, bound // 2, p.rows)
            for head in range(2):
                yield Wavefront(
                    load=head == 0,
                    compare=head == 1,
                    last=head == 1 and tile == tiles - 1,
                    halve=False,
                    scores=np.where(leaves & (head == when), extreme, 0),
                    importance=np.where(leaves, end, importance),
                    valid=leaves | (rng.random(p.rows) < 0.8),
                    protect=rng.random(p.rows) < 0.3,
                )
