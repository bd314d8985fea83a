"""The effect of LAD's attention on a model's text: ROUGE, perplexity, and the default I."""

from collections.abc import Mapping

import numpy as np
import torch

from golden.lad.key_centres import THRESHOLD
from golden.llm.model import texts_of
from golden.study.lad_attention import Scheme
from golden.study.lad_generation import continued, requested
from golden.study.lad_measured import Laboratory, Measured, Variant
from golden.study.lad_rivals import HeavyHitters, Kv4
from golden.study.losses import ordering, perplexity_of
from golden.study.outcome import Claim, Table
from golden.study.rouge import MEASURES, rouge
from hdl.lad.exp_intervals import Fit, IntervalParameters

PROMPTS, PROMPT, GENERATED = 6, 256, 128
"""Number of prompts of each kind; tokens per prompt; generated tokens."""
SKIPPED = 2048
"""Tokens of the text that precede the passages."""
GOAL = 0.95
"""Minimum ROUGE-1 of a default; the paper's minimum is 95.1 %."""
ORIGINAL = "original"


def scheme(
    intervals: int,
    fit: Fit = Fit.LSQ,
    *,
    centres: bool = False,
    caches: torch.dtype | None = None,
    period: int | None = None,
) -> Scheme:
    """Return a variant, with exact scores and exact caches by default."""
    return Scheme(
        intervals=IntervalParameters(intervals=intervals, fit=fit),
        threshold=THRESHOLD if centres else None,
        caches=caches,
        period=period,
    )


def variants(*, full: bool) -> dict[str, Variant]:
    """Return the variants that generate text, by name."""
    half = torch.float16
    few: dict[str, Variant] = {
        "I = 5": scheme(5),
        "I = 8": scheme(8),
        "I = 12": scheme(12),
        "KV4": Kv4(),
        "H2O": HeavyHitters(),
    }
    more: dict[str, Variant] = {
        "I = 16": scheme(16),
        "I = 8, nonneg": scheme(8, Fit.NONNEG),
        "I = 12, key centres": scheme(12, centres=True),
        "I = 12, key centres, FP32 caches": scheme(12, centres=True, caches=torch.float32),
        "I = 12, key centres, FP16 caches": scheme(12, centres=True, caches=half),
        "I = 12, key centres, FP16 caches of 64 steps": scheme(
            12, centres=True, caches=half, period=64
        ),
    }
    return few | more if full else few


def predicted(*, full: bool) -> dict[str, Variant]:
    """Return the variants whose perplexity is measured, by name."""
    half = torch.float16
    few: dict[str, Variant] = {
        ORIGINAL: None,
        "I = 5": scheme(5),
        "I = 8": scheme(8),
        "I = 12": scheme(12),
        "KV4": Kv4(),
        "I = 12, key centres": scheme(12, centres=True),
        "I = 12, key centres, FP16 caches": scheme(12, centres=True, caches=half),
    }
    more: dict[str, Variant] = {
        "I = 16": scheme(16),
        "I = 5, nonneg": scheme(5, Fit.NONNEG),
        "I = 8, nonneg": scheme(8, Fit.NONNEG),
        "I = 8, key centres": scheme(8, centres=True),
        "I = 8, key centres, FP16 caches": scheme(8, centres=True, caches=half),
        "I = 12, key centres, FP32 caches": scheme(12, centres=True, caches=torch.float32),
        **{
            f"I = 12, key centres, FP16 caches of {period} steps": scheme(
                12, centres=True, caches=half, period=period
            )
            for period in (16, 64, 256)
        },
    }
    return few | more if full else few


def texts(laboratory: Laboratory, *, full: bool) -> tuple[Table, list[Claim], dict[str, float]]:
    """Generate text with every variant, and compare it with the original model's."""
    prompts = np.concatenate(
        [requested(PROMPTS, PROMPT), continued(PROMPTS, PROMPT, SKIPPED)]
    ).astype(np.int64)
    original = laboratory.generated("text: original", None, prompts, GENERATED)
    target = texts_of(original)
    rows, means = [], {}
    for name, variant in variants(full=full).items():
        tokens = laboratory.generated(f"text: {name}", variant, prompts, GENERATED)
        scores = rouge(target, texts_of(tokens))
        means[name] = float(scores[:, 0].mean())
        error = scores[:, 0].std(ddof=1) / len(scores) ** 0.5
        same = np.cumprod(tokens == original, axis=1).sum(1)
        rows.append(
            (
                name,
                *(f"{100 * score:.1f}" for score in scores.mean(0)),
                f"{100 * error:.1f}",
                f"{np.median(same):.0f}",
                f"{(same == GENERATED).sum()} of {len(same)}",
            )
        )
    table = Table(
        title="Generated text against the original model's",
        columns=("attention", *MEASURES, "error of rouge1", "equal tokens, median", "all equal"),
        rows=rows,
        note=(
            f"In percent. {PROMPTS} requests for a summary in the chat format and {PROMPTS} news "
            f"passages to continue, {PROMPT} tokens each, {GENERATED} generated greedily. "
            "Attention in float64 with FP16 coefficients. One different token changes all later "
            "tokens."
        ),
    )
    reached = [name for name, mean in means.items() if name.startswith("I =") and mean >= GOAL]
    claims = [
        Claim(
            what=f"ROUGE-1 of text generated with I = {number} is at least 95 %",
            paper="95.1 to 98.3 % (Table I)",
            ours=f"{means[f'I = {number}']:.1%}",
            holds="yes" if f"I = {number}" in reached else "no",
        )
        for number in (5, 8, 12)
    ]
    claims += [
        Claim(
            what=f"LAD is nearer to the original than {rival}",
            paper=paper,
            ours=f"I = 12: {means['I = 12']:.1%}; {rival}: {means[rival]:.1%}",
            holds="yes" if means["I = 12"] > means[rival] else "no",
        )
        for rival, paper in (
            ("KV4", "95.2 to 97.2 against 54.1 to 77.6 % (LLaMA2)"),
            ("H2O", "95.1 to 98.3 against 19.1 to 56.5 %"),
        )
    ]
    return table, claims, means


def predictions(
    laboratory: Laboratory, windows: np.ndarray, *, full: bool
) -> tuple[Table, list[Claim], dict[str, float]]:
    """Measure the perplexity of the text with every variant."""
    found: dict[str, list[Measured]] = {
        name: [laboratory.predictions(f"text's loss: {name}", variant, row) for row in windows]
        for name, variant in predicted(full=full).items()
    }
    losses = {name: np.stack([m.losses for m in some]) for name, some in found.items()}
    table = Table(
        title="Perplexity of the text, and argmax tokens",
        columns=("attention", "perplexity", "worse", "different argmax", "denominators <= 0"),
        rows=[_row(name, some, found[ORIGINAL], losses) for name, some in found.items()],
        note=(
            f"News, {windows.size} tokens in windows of {windows.shape[1]}; every token is a "
            "decoding step. Worse: whether the original is significantly better, token by token. "
            "Denominators: of all layers, heads and steps."
        ),
    )
    return table, _perplexity_claims(losses), {n: perplexity_of(lost) for n, lost in losses.items()}


def _row(
    name: str, some: list[Measured], original: list[Measured], losses: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Return one variant's row."""
    other = np.concatenate(
        [mine.choices != its.choices for mine, its in zip(some, original, strict=True)]
    )
    worse = "-" if name == ORIGINAL else ordering(losses[ORIGINAL], losses[name])
    bad = sum(m.nonpositive for m in some)
    return name, f"{perplexity_of(losses[name]):.2f}", worse, f"{other.mean():.1%}", str(bad)


def _perplexity_claims(losses: Mapping[str, np.ndarray]) -> list[Claim]:
    ours = {name: perplexity_of(lost) for name, lost in losses.items()}
    names = ("I = 5", "I = 8", "I = 12", "I = 12, key centres", "I = 12, key centres, FP16 caches")
    return [
        Claim(
            what=f"perplexity is the original's: {name}",
            paper="equal to 0.01 (Table II)",
            ours=f"{ours[name]:.2f} against {ours[ORIGINAL]:.2f}",
            holds="yes" if abs(ours[name] / ours[ORIGINAL] - 1) < 0.001 else "no",
        )
        for name in names
    ]
