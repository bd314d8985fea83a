"""Agreement of a preset's kept tokens and victims with those of exact sums.

`python -m golden.kelle.eviction.exact_sums [PRESET]`. The accelerator and its bit-exact model share
shift and width of an importance. This study sums the same scores exactly, over a whole context.
"""

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.kelle.decoder_layer import real_layer
from golden.kelle.eviction.aerp import AerpParameters
from golden.kelle.eviction.prefill import head_scores
from golden.kelle.eviction.prefill_selector import importances
from golden.kelle.eviction.systolic_evictor import accumulate
from golden.kelle.kelle import KelleModel
from golden.llm import Trace, open_trace
from hdl.catalog import entry_named
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.kelle.parameters import KelleParameters

Integers = NDArray[np.int64]
LAYERS = (0, 14, 21, 29)


@dataclass(frozen=True)
class Agreement:
    """Shares, from 0 to 1, over the key/value heads of a layer.

    Parameters
    ----------
    kept : float
        Share of the tokens kept by a prefill for their importance that exact sums also keep.
    victims : float
        Share of the decode steps with the same victim as exact sums, each on its own history.
    """

    kept: float
    victims: float


def agreement(p: KelleParameters, trace: Trace, layer: int, steps: int) -> Agreement:
    """Compare a preset with exact sums on a layer's scores.

    The last `steps` tokens of the trace are decoded, all others prefilled.
    """
    model = KelleModel(p, real_layer(trace, layer, p))
    policy = AerpParameters(budget=p.slots, window=p.window, sinks=p.sinks)
    first = len(trace.tokens) - steps
    free = p.slots - p.window - p.sinks
    kept, victims = [], []
    for scores in head_scores(model, len(trace.tokens)):
        before = scores[:, :first, :first]
        totals = importances(before, p.eviction.evictor), before.sum(axis=(0, 1))
        chosen = [policy.survivors(total) for total in totals]
        kept.append((len(np.intersect1d(chosen[0], chosen[1])) - p.window - p.sinks) / free)
        runs = [
            _decode(scores, total[positions], positions, policy, evictor)
            for total, positions, evictor in zip(
                totals, chosen, (p.eviction.evictor, None), strict=True
            )
        ]
        victims.append(float(np.mean(runs[0] == runs[1])))
    return Agreement(float(np.mean(kept)), float(np.mean(victims)))


def _decode(
    scores: Integers,
    importance: Integers,
    positions: Integers,
    policy: AerpParameters,
    evictor: SystolicEvictorParameters | None,
) -> Integers:
    """Return the position evicted in each step; without `evictor`, sums are exact."""
    total, cached, victims = importance.copy(), positions.copy(), []
    first = int(positions[-1]) + 1
    for now in range(first, scores.shape[1]):
        own = np.zeros(1, np.int64)
        for given in scores[:, now]:
            total = _add(total, given[cached], evictor)
            own = _add(own, given[now : now + 1], evictor)
        candidates = np.flatnonzero(~policy.protects(cached, now))
        slot = candidates[np.argmin(total[candidates])]
        victims.append(int(cached[slot]))
        cached[slot], total[slot] = now, own[0]
    return np.array(victims)


def _add(total: Integers, given: Integers, p: SystolicEvictorParameters | None) -> Integers:
    return total + given if p is None else accumulate(total, given, p)[0]


def main(preset: str) -> None:
    """Print one row per layer, at the preset's whole context."""
    p = entry_named("kelle").parameters(preset)
    trace = open_trace(text="news", tokens=p.prefill_tokens, layers=LAYERS)
    print("| layer | kept tokens | victims |\n|---|---|---|")
    for layer in LAYERS:
        found = agreement(p, trace, layer, p.prefill_tokens // 4)
        print(f"| {layer} | {found.kept:.1%} | {found.victims:.1%} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["smollm2"])
