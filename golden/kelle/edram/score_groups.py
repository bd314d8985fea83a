"""Who is in the high-score group of a real decode, and what refreshing by it saves.

`python -m golden.kelle.edram.score_groups [PRESET]`. The refresh controllers see few bits of an
importance; here the same tokens are ranked by the exact sums of their scores.
"""

import sys
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from golden.kelle.decoder_layer import real_layer
from golden.kelle.edram.refresh_controller import high_scores, median_threshold
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import head_scores, prefill
from golden.kelle.eviction.slot_table import export_score
from golden.kelle.kelle import KelleModel
from golden.llm import open_trace
from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters

Flags = NDArray[np.bool_]
LAYERS = (0, 14, 29)
STEPS = 128
TICKS = {"msb": (1, 4), "lsb": (15, 20)}
"""The paper's intervals of high and low scores, in ticks of 0.36 ms."""

UNIFORM_TICKS = Fraction(45, 360)
"""45 us, in which every cell keeps its bit."""


@dataclass(frozen=True)
class Groups:
    """Means over a decode's steps, from 0 to 1.

    Parameters
    ----------
    threshold_share, share : float
        Of the entries, those with the median's score or more, and those of the half by rank.
    agreement : float
        Of the better half by exact sums, those in the half by rank.
    """

    threshold_share: float
    share: float
    agreement: float


def saving(share: float) -> float:
    """Return how many times fewer words than every 45 us, with a share of high scores."""
    rates = [share / high + (1 - share) / low for high, low in TICKS.values()]
    return float(1 / UNIFORM_TICKS) * len(rates) / sum(rates)


def groups(p: KelleParameters, layer: int, score_bits: int, steps: int = STEPS) -> Groups:
    """Decode behind a prefill of 9/8 of the budget, and look at the slots after each step."""
    trace = open_trace(text="prose", tokens=640, layers=(layer,))
    model = KelleModel(p, real_layer(trace, layer, p))
    first = p.slots + p.slots // 8
    prefill(model, first)
    # What all queries up to a step have given each token: exact, and by another way.
    sums = [scores.sum(axis=0).cumsum(axis=0) for scores in head_scores(model, first + steps)]
    inputs, found = model.layer.quantised.copy(), []
    for now in range(first, first + steps):
        step = model.step(now, model.layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
        exact, coarse, stored = [], [], []
        for head, total in zip(model.eviction.heads, sums, strict=True):
            importance = total[now, head.positions].astype(np.float64)
            # Heads are comparable by their largest magnitude, which is what the hardware sees.
            exact.append(importance / np.abs(importance).max())
            bits, source = head.bits, p.eviction.evictor.source
            coarse.append(export_score(head.importance, bits, source, score_bits))
            stored.append(head.recomputed == KEPT)
        found.append(_shares(*(np.concatenate(column) for column in (exact, coarse, stored))))
    return Groups(*np.mean(found, axis=0))


def _shares(exact: NDArray[np.float64], coarse: NDArray[np.int64], stored: Flags) -> list[float]:
    """Return a step's shares, as `Groups` has them."""
    reached = median_threshold(coarse, stored, int(coarse.max()).bit_length())
    half, truth = high_scores(coarse, stored), high_scores(exact, stored)
    count = np.count_nonzero(stored)
    return [
        np.count_nonzero(stored & (coarse >= reached)) / count,
        np.count_nonzero(half) / count,
        np.count_nonzero(half & truth) / np.count_nonzero(truth),
    ]


def main(preset: str) -> None:
    """Print a row a layer and width of scores."""
    p = entry_named("kelle").parameters(preset)
    print("| layer | bits | at the median or above | saving | by rank | saving | exact half |")
    print("|---|---|---|---|---|---|---|")
    for layer in LAYERS:
        for bits in (4, 6, 8):
            g = groups(p, layer, bits)
            before, after = saving(g.threshold_share), saving(g.share)
            print(
                f"| {layer} | {bits} | {g.threshold_share:.0%} | {before:.1f} | {g.share:.0%}"
                f" | {after:.1f} | {g.agreement:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:] or ["smollm2"])
