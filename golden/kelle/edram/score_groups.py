"""The high-score group of a real decode, and the refreshes that it saves.

`python -m golden.kelle.edram.score_groups [PRESET]`. The refresh controllers compare a few bits of
the importances of all heads in one histogram. Two other rankings of the same tokens are compared
with that group: exact sums of the scores over all heads of a layer, and exact sums head by head, as
the study of bit errors (`golden.study.retention`) splits them.
"""

import sys
from collections.abc import Sequence
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
"""Layers of the table of savings."""
ALL_LAYERS = tuple(range(30))
SCORE_BITS = 4
"""Bits of a coarse score of the accelerator."""
STEPS = 128
TICKS = {"msb": (1, 4), "lsb": (15, 20)}
"""The paper's intervals of high and low scores, in ticks of 0.36 ms."""

UNIFORM_TICKS = Fraction(45, 360)
"""45 us, the interval in which every cell retains its bit."""


@dataclass(frozen=True, eq=False)
class Decode:
    """The slots of one layer after each step of a decode.

    Parameters
    ----------
    exact : numpy.ndarray
        int64 [steps, heads, slots], exact sums of all scores of a token.
    coarse : numpy.ndarray
        int64 [steps, heads, slots], coarse scores, as sent to the refresh controllers.
    stored : numpy.ndarray
        bool [steps, heads, slots], whether key and value are stored, not recomputed.
    """

    exact: NDArray[np.int64]
    coarse: NDArray[np.int64]
    stored: Flags


@dataclass(frozen=True)
class Groups:
    """Means over a decode's steps, from 0 to 1.

    Parameters
    ----------
    threshold_share, share : float
        Share of entries with the median's score or more; share of entries in the half by rank.
    agreement : float
        Share of the better half by exact sums that is in the half by rank.
    """

    threshold_share: float
    share: float
    agreement: float


def saving(share: float) -> float:
    """Return the factor by which fewer words are refreshed than every 45 us.

    share : float
        Share of entries in the high-score group.
    """
    rates = [share / high + (1 - share) / low for high, low in TICKS.values()]
    return float(1 / UNIFORM_TICKS) * len(rates) / sum(rates)


def decode(
    p: KelleParameters, layer: int, score_bits: int, steps: int = STEPS, layers: Sequence[int] = ()
) -> Decode:
    """Decode after a prefill of 9/8 of the budget, and record the slots after each step.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator.
    layer : int
        The layer of SmolLM2.
    score_bits : int
        Bits of a coarse score.
    steps : int
        Decode steps.
    layers : Sequence[int]
        Layers whose tensors are captured together; only `layer` by default.
    """
    trace = open_trace(text="prose", tokens=640, layers=tuple(layers) or (layer,))
    model = KelleModel(p, real_layer(trace, layer, p))
    first = p.slots + p.slots // 8
    prefill(model, first)
    # Exact sums of each token's scores up to each step, independent of the model's arithmetic.
    sums = [scores.sum(axis=0).cumsum(axis=0) for scores in head_scores(model, first + steps)]
    inputs = model.layer.quantised.copy()
    exact, coarse, stored = (np.zeros((steps, p.kv_heads, p.slots), np.int64) for _ in range(3))
    for row, now in enumerate(range(first, first + steps)):
        step = model.step(now, model.layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
        for number, (head, total) in enumerate(zip(model.eviction.heads, sums, strict=True)):
            source = p.eviction.evictor.source
            exact[row, number] = total[now, head.positions]
            coarse[row, number] = export_score(head.importance, head.bits, source, score_bits)
            stored[row, number] = head.recomputed == KEPT
    return Decode(exact, coarse, stored.astype(bool))


def groups(p: KelleParameters, layer: int, score_bits: int, steps: int = STEPS) -> Groups:
    """Decode, and compare the group by few bits with that by exact sums over all heads."""
    found = decode(p, layer, score_bits, steps)
    # Heads are normalised by their largest magnitude, as in the hardware.
    scaled = found.exact / np.abs(found.exact).max(axis=2, keepdims=True)
    shares = [
        _shares(*(part[row].reshape(-1) for part in (scaled, found.coarse, found.stored)))
        for row in range(steps)
    ]
    return Groups(*np.mean(shares, axis=0))


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


def head_agreement(exact: NDArray[np.int64], high: Flags, stored: Flags) -> NDArray[np.float64]:
    """Return, for each head, the share of its own better half that is in a high-score group.

    Parameters
    ----------
    exact, high, stored : numpy.ndarray
        [steps, heads, slots]: exact sums, the group, and the entries that count.

    Returns
    -------
    numpy.ndarray
        float64 [heads], means over the steps; a random group of half of the entries gives 0.5.
    """
    steps, heads, _slots = exact.shape
    shares = np.zeros((steps, heads))
    for row, head in np.ndindex(steps, heads):
        truth = high_scores(exact[row, head].astype(np.float64), stored[row, head])
        shares[row, head] = np.count_nonzero(truth & high[row, head]) / np.count_nonzero(truth)
    return shares.mean(axis=0)


def head_share(high: Flags, stored: Flags) -> NDArray[np.float64]:
    """Return the share of each head's tokens that are in the group, [heads], a mean over the steps.

    A head of which nearly all tokens, or nearly none, are in the group is effectively not split.
    """
    return ((high & stored).sum(axis=2) / stored.sum(axis=2)).mean(axis=0)


def pooled_high(coarse: NDArray[np.int64], stored: Flags) -> Flags:
    """Return the high-score group of each step, with all entries in one histogram."""
    high = np.zeros_like(stored)
    for row in range(len(coarse)):
        flat = high_scores(coarse[row].reshape(-1), stored[row].reshape(-1))
        high[row] = flat.reshape(stored[row].shape)
    return high


def main(preset: str) -> None:
    """Print one row per layer and bits of scores, then the agreement by head."""
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
    _print_heads(p)


def _print_heads(p: KelleParameters) -> None:
    """Print how the accelerator's group agrees with the better half of each head."""
    found = [decode(p, layer, SCORE_BITS, layers=ALL_LAYERS) for layer in ALL_LAYERS]
    everything = Decode(
        *(
            np.concatenate([getattr(one, name) for one in found], axis=1)
            for name in ("exact", "coarse", "stored")
        )
    )
    heads = everything.exact.shape[1]
    spans = {"one per head": 1, "one per layer": p.kv_heads}
    spans[f"one for {len(ALL_LAYERS)} layers"] = heads
    columns = ("below 10 %", "10 to 50 %", "50 to 90 %", "90 % and more", "lowest", "mean")
    columns += ("under 10 % of all tokens high", "over 90 % of all tokens high")
    print("\n| histograms | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    agreements = {}
    for title, span in spans.items():
        high = np.concatenate(
            [
                pooled_high(
                    everything.coarse[:, first : first + span],
                    everything.stored[:, first : first + span],
                )
                for first in range(0, heads, span)
            ],
            axis=1,
        )
        shares = head_agreement(everything.exact, high, everything.stored)
        agreements[title] = shares
        counts, _edges = np.histogram(shares, [0, 0.1, 0.5, 0.9, 1.0 + 1e-9])
        cells = [*map(str, counts), f"{shares.min():.0%}", f"{shares.mean():.0%}"]
        share = head_share(high, everything.stored)
        cells += [str(np.count_nonzero(share < 0.1)), str(np.count_nonzero(share > 0.9))]
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
    print("\n| layer | " + " | ".join(spans) + " |\n|---" + "|---" * len(spans) + "|")
    for layer in ALL_LAYERS:
        mine = slice(layer * p.kv_heads, (layer + 1) * p.kv_heads)
        cells = [", ".join(f"{100 * s:.0f}" for s in found[mine]) for found in agreements.values()]
        print(f"| {layer} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["smollm2"])
