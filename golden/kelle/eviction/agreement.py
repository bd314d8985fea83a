"""Agreement of raw scores and probabilities on the victim.

`python -m golden.kelle.eviction.agreement`. Section 5.3 of the paper accumulates raw scores in
hardware, Equation 3 probabilities. Victims are compared in each step from the same state, that of
the probability policy, so that an early difference does not affect later steps. Survivors are
compared after each policy has run independently.
"""

from dataclasses import dataclass

import numpy as np

from golden.kelle.eviction.aerp import EMPTY, AerpParameters, DecodeStep, replay
from golden.llm import open_trace
from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters

LAYERS = (0, 14, 29)
POLICY = AerpParameters(budget=128, window=64)
STEPS = 256


WIDTHS = (
    (ScoreSource.RAW, 16, 8),
    (ScoreSource.RAW, 16, 6),
    (ScoreSource.RAW, 24, 2),
    (ScoreSource.PROB, 16, 4),
    (ScoreSource.PROB, 24, 0),
)
"""Sources, bits of an importance score and shifts for which the effect of rounding is measured."""


@dataclass(frozen=True)
class Agreement:
    """Shares, from 0 to 1, over all layers, key/value heads and steps.

    Parameters
    ----------
    same_victim : float
        Steps in which raw and probability sums, over one history, have the same minimum.
    survivors : float
        Tokens outside sinks and window that both policies hold at the end.
    integers : tuple[float, ...]
        For each of `WIDTHS`, steps in which the evictor's integers select the same token as
        float64, each on its own history.
    """

    same_victim: float
    survivors: float
    integers: tuple[float, ...]

    def lines(self) -> list[str]:
        """Return the rows of the table in the documentation."""
        rows = [
            ("raw against probability: same victim from one history", self.same_victim),
            ("raw against probability: survivors in common after 256 steps", self.survivors),
        ]
        for (source, width, shift), share in zip(WIDTHS, self.integers, strict=True):
            what = f"{source.value}: {width}-bit sums, shift {shift}, against float64: same victim"
            rows.append((what, share))
        return [f"| {what} | {share:.1%} |" for what, share in rows]


def agreement() -> Agreement:
    """Measure on SmolLM2, three layers, every key/value head, 256 decode steps."""
    trace = open_trace(text="prose", tokens=640, layers=LAYERS)
    group = trace.heads // trace.kv_heads
    tallies = []
    for layer in LAYERS:
        for kv_head in range(trace.kv_heads):
            heads = range(kv_head * group, (kv_head + 1) * group)
            tallies.append(
                _one_head(np.stack([trace.attention_trace(layer, head).scores for head in heads]))
            )
    same_victim, survivors, *integers = (float(share) for share in np.mean(tallies, axis=0))
    return Agreement(same_victim, survivors, tuple(integers))


def _one_head(scores: np.ndarray) -> list[float]:
    """Return the shares of one key/value head, in the order of `Agreement`."""

    def run(source: ScoreSource, evictor: SystolicEvictorParameters | None) -> list[DecodeStep]:
        return list(
            replay(scores, POLICY, first=POLICY.budget, steps=STEPS, source=source, evictor=evictor)
        )

    truth = {source: run(source, None) for source in ScoreSource}
    raw, prob = truth[ScoreSource.RAW], truth[ScoreSource.PROB]
    shares = [
        float(np.mean([_raw_victim(scores, step) == step.victim for step in prob])),
        _common(raw[-1], prob[-1]),
    ]
    for source, width, shift in WIDTHS:
        evictor = SystolicEvictorParameters(
            slots=POLICY.budget, score_width=width, shift=shift, source=source
        )
        shares.append(_equal(truth[source], run(source, evictor)))
    return shares


def _raw_victim(scores: np.ndarray, step: DecodeStep) -> int:
    """Return the victim by raw sums over the whole history, among the tokens cached in a step."""
    positions = step.positions
    sums = np.array(
        [
            scores[:, position : step.now + 1, position].sum() if position != EMPTY else np.inf
            for position in positions
        ]
    )
    candidates = np.flatnonzero((positions != EMPTY) & ~step.protect)
    return int(candidates[np.argmin(sums[candidates])])


def _common(one: DecodeStep, other: DecodeStep) -> float:
    free = [set(step.positions[~step.protect].tolist()) for step in (one, other)]
    return len(free[0] & free[1]) / len(free[0])


def _equal(one: list[DecodeStep], other: list[DecodeStep]) -> float:
    """Compare the tokens, not the slots: after one difference the slots no longer correspond."""
    pairs = zip(one, other, strict=True)
    return float(np.mean([a.positions[a.victim] == b.positions[b.victim] for a, b in pairs]))


if __name__ == "__main__":
    print("\n".join(["| measured on SmolLM2 | share |", "|---|---|", *agreement().lines()]))
