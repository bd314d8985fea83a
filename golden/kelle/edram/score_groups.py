"""The high-score group of a real decode, and the refreshes that it saves.

`python -m golden.kelle.edram.score_groups [PRESET]`. The refresh controllers take coarse scores
that are centred at the median of each head. Their high-score group is compared with the exact
split: the better half of each head's tokens by exact sums of their scores, as the study of bit
errors (`golden.study.retention`) splits them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.kelle.decoder_layer import real_layer
from golden.kelle.edram.refresh_controller import better_half, high_group
from golden.kelle.eviction.prefill import head_scores, prefill
from golden.kelle.kelle import KelleModel
from golden.llm import open_trace
from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters

Flags = NDArray[np.bool_]
ALL_LAYERS = tuple(range(30))
STEPS = 128
TICKS = {"msb": (1, 4), "lsb": (15, 20)}
"""The paper's intervals of high and low scores, in ticks of 0.36 ms."""

UNIFORM_TICKS = Fraction(45, 360)
"""45 us, the interval in which every cell retains its bit."""


@dataclass(frozen=True, eq=False)
class Decode:
    """The slots of some layers after each step of a decode, as the refresh controllers see them.

    Parameters
    ----------
    exact : numpy.ndarray
        int64 [steps, heads, slots], exact sums of all scores of a token; with `centred` the
        importances themselves, which depend on the tracked median.
    high : numpy.ndarray
        bool [steps, heads, slots], the high-score group.
    stored : numpy.ndarray
        bool [steps, heads, slots], whether key and value are stored, not recomputed.
    """

    exact: NDArray[np.int64]
    high: Flags
    stored: Flags

    def agreement(self) -> NDArray[np.float64]:
        """Return, for each head, the share of its own better half that is in the group.

        Means over the steps, [heads]; a random group of half of the entries gives 0.5.
        """
        steps, heads, _slots = self.exact.shape
        shares = np.zeros((steps, heads))
        for at in np.ndindex(steps, heads):
            truth = better_half(self.exact[at].astype(np.float64), self.stored[at])
            shares[at] = np.count_nonzero(truth & self.high[at]) / np.count_nonzero(truth)
        return shares.mean(axis=0)

    def share(self) -> NDArray[np.float64]:
        """Return the share of each head's tokens that are in the group, [heads], as means.

        A head of which nearly all tokens, or nearly none, are in the group is not divided.
        """
        return ((self.high & self.stored).sum(axis=2) / self.stored.sum(axis=2)).mean(axis=0)


def saving(share: float) -> float:
    """Return the factor by which fewer words are refreshed than every 45 us.

    share : float
        Share of entries in the high-score group.
    """
    rates = [share / high + (1 - share) / low for high, low in TICKS.values()]
    return float(1 / UNIFORM_TICKS) * len(rates) / sum(rates)


def decode(
    p: KelleParameters, layer: int, steps: int = STEPS, layers: Sequence[int] = ()
) -> Decode:
    """Decode after a prefill of 9/8 of the budget, and record the entries after each step.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator.
    layer : int
        The layer of SmolLM2.
    steps : int
        Decode steps.
    layers : Sequence[int]
        Layers whose tensors are captured together; only `layer` by default.
    """
    trace = open_trace(text="prose", tokens=640, layers=tuple(layers) or (layer,))
    model = KelleModel(p, real_layer(trace, layer, p))
    first = p.slots + p.slots // 8
    # Exact sums of each token's scores up to each step, independent of the model's arithmetic.
    sums = [scores.sum(axis=0).cumsum(axis=0) for scores in head_scores(model, first + steps)]
    inputs = model.layer.quantised.copy()
    # Score and validity of each entry, by the score updates of the bit-exact model.
    known = np.zeros((2, p.eviction.entries), np.int64)
    slots = slice(0, p.kv_heads * p.slots)
    exact, high, stored = (list[Any]() for _ in range(3))
    updates = prefill(model, first).score_updates
    for now in range(first, first + steps):
        step = model.step(now, model.layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
        for entry, score, valid in [*updates, *step.score_updates]:
            known[:, entry] = score, valid
        updates = []
        heads = model.eviction.heads
        if p.centred:
            exact.append([head.importance.copy() for head in heads])
        else:
            both = zip(heads, sums, strict=True)
            exact.append([total[now, head.positions] for head, total in both])
        scores, valid = known[:, slots].reshape(2, p.kv_heads, p.slots)
        high.append(high_group(scores, p.eviction.score_bits))
        stored.append(valid > 0)
    return Decode(np.array(exact), np.array(high), np.array(stored))


def main(preset: str) -> None:
    """Print the agreement, the share and the saving of each layer, then of all heads."""
    p = entry_named("kelle").parameters(preset)
    print("| layer | share of the exact half, by head | high scores, by head | saving |")
    print("|---|---|---|---|")
    agreements, shares = [], []
    for layer in ALL_LAYERS:
        found = decode(p, layer, layers=ALL_LAYERS)
        agreements.append(found.agreement())
        shares.append(found.share())
        cells = (
            ", ".join(f"{100 * value:.0f}" for value in own) for own in (agreements[-1], shares[-1])
        )
        saved = saving(float(shares[-1].mean()))
        print(f"| {layer} | " + " | ".join(cells) + f" | {saved:.1f} |", flush=True)
    for what, values in (("exact half", agreements), ("high scores", shares)):
        every = np.array(values)
        ends = (every.min(), every.mean(), every.max())
        print(f"{what}, {every.size} heads: " + ", ".join(f"{end:.1%}" for end in ends))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["smollm2"])
