"""The study of P3-LLM: perplexity with its formats, step by step, its speed, energy and area."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from golden.llm import text_named
from golden.llm.model import load_tokens
from golden.p3llm.oaken import oaken_cache, watched_projections
from golden.p3llm.qserve import qserve_model
from golden.p3llm.quarot import quarot_model
from golden.study import (
    p3llm_area,
    p3llm_grid,
    p3llm_keys,
    p3llm_outliers,
    p3llm_rivals,
    p3llm_tables,
)
from golden.study.comparisons import Comparison, compared, verdicts
from golden.study.losses import perplexity_of
from golden.study.outcome import Claim, Outcome, Plot, Table
from golden.study.p3llm_passes import (
    CALIBRATION_TOKENS,
    Losses,
    SchemePasses,
    kept_passes,
    window_losses,
)
from golden.study.p3llm_schemes import (
    ABLATION,
    LINEAR,
    OPERAND_BITS,
    OPERANDS,
    PROBABILITIES,
    ROPE,
    SATURATION,
    decoding,
)
from golden.study.subject import Progress, Subject

OPERAND_TOKENS = 512
"""Tokens of the single window for Figure 3 (b); a full study uses all windows."""

Verdict = tuple[Comparison, str, str]
"""A comparison, the kind of the paper's claim, and the paper's figures."""


def study(subject: Subject, *, full: bool) -> Outcome:
    """Run the study; `full` uses more text, also for Figure 3 (b)."""
    passes = kept_passes(subject.model, subject.progress)
    windows = subject.windows
    few = windows if full else windows[:1, :OPERAND_TOKENS]
    keys = p3llm_keys.key_errors(subject.model, subject.progress)
    channels = p3llm_outliers.channel_ratios(subject.model, windows[0], subject.progress)
    grid = p3llm_grid.grid_results(passes, windows)
    calibration = load_tokens(text_named("prose"))[:CALIBRATION_TOKENS]
    rivals = rival_losses(subject.model, windows, calibration, subject.progress)
    return outcome_of(passes, windows, few, keys, channels, grid, rivals)


def outcome_of(
    passes: SchemePasses,
    windows: np.ndarray,
    few: np.ndarray,
    keys: p3llm_keys.KeyErrors,
    channels: p3llm_outliers.Ratios,
    grid: p3llm_grid.GridResults,
    rivals: Losses,
) -> Outcome:
    """Return the outcome for windows of text."""
    prompt = windows.shape[1] // 2
    steps = passes.losses("Table VI", ABLATION, windows)
    rope = passes.losses("keys before and after RoPE", ROPE, windows)
    shares = passes.losses("Table II", PROBABILITIES, windows)
    fused = passes.losses("scales of values", SATURATION, windows)
    linear = passes.losses("Table III", LINEAR, windows)
    stages = passes.losses("decoding", decoding(prompt), windows)
    single = passes.losses("Figure 3 (b)", {"baseline": ABLATION["baseline"], **OPERANDS}, few)

    later = {name: lost[:, prompt:] for name, lost in stages.items()}
    judged = [
        *_ablation_verdicts({**steps, **rivals}),
        *_format_verdicts(steps["baseline"], rope, shares, fused, linear),
        *_operand_verdicts(single),
        *_decoding_verdicts(later),
    ]
    holds = verdicts([comparison for comparison, _, _ in judged])
    claims = [
        Claim(what=comparison.name, paper=paper, ours=comparison.shown(), holds=_held(found, kind))
        for (comparison, kind, paper), found in zip(judged, holds, strict=True)
    ]
    tables = [
        p3llm_tables.ablation(steps),
        p3llm_tables.probabilities(steps["baseline"], shares),
        p3llm_tables.linear(steps["baseline"], linear),
        _plain("Keys before and after the rotary embedding", steps["baseline"], rope),
        _plain("Scales of values inside the probabilities", steps["baseline"], fused),
        p3llm_tables.published(steps, rivals),
        p3llm_grid.table(grid),
        p3llm_tables.operands(single),
        _decoding_table(steps["baseline"][:, prompt:], later, prompt),
        p3llm_keys.table(keys),
        p3llm_outliers.table(channels),
        *p3llm_tables.speed(),
        *p3llm_rivals.tables(),
        p3llm_area.table(),
    ]
    curves = {
        operand: (OPERAND_BITS, [perplexity_of(single[f"{operand}{n}"]) for n in OPERAND_BITS])
        for operand in ("W", "A", "KV", "P")
    }
    figures = {
        name: perplexity_of(lost)
        for part in (steps, rope, shares, fused, linear, stages)
        for name, lost in part.items()
    }
    return Outcome(
        paper="p3llm",
        settings={
            "model": "SmolLM2-135M-Instruct",
            "text": "news",
            "tokens": windows.size,
            "context": windows.shape[1],
        },
        claims=[
            *claims,
            *p3llm_keys.claims(keys),
            *p3llm_outliers.claims(channels),
            *p3llm_tables.speed_claims(),
            *p3llm_rivals.claims(),
            *p3llm_area.claims(),
        ],
        tables=tables,
        plots=[
            Plot(
                stem="operands",
                title="One operand at a time, in integers",
                x="bits",
                y="perplexity",
                curves=curves,
            ),
            p3llm_keys.plot(keys),
            p3llm_tables.roofline(),
            p3llm_rivals.plot(),
        ],
        figures={**figures, "comparisons": len(judged), "keys": keys.means()},
    )


def rival_losses(
    model: Any, windows: np.ndarray, calibration: np.ndarray, progress: Progress
) -> Losses:
    """Return the losses [windows, tokens - 1] of the rivals of Table IV by name.

    Oaken quantises keys and values alone, QuaRot and QServe all tensors but probabilities.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    windows : numpy.ndarray
        Token numbers [windows, tokens].
    calibration : numpy.ndarray
        Token numbers of the text that gives thresholds, smoothing factors and weights.
    progress : Progress
        Called for each rival with its number of steps.
    """
    layers = model.config.num_hidden_layers

    def measured(own: Any, done: Callable[[], None]) -> np.ndarray:
        rows = []
        for window in windows:
            rows.append(window_losses(own, window))
            done()
        return np.stack(rows)

    done = progress("Oaken (Table IV)", len(windows) + 1)
    with watched_projections(model) as thresholds:
        window_losses(model, calibration)
    done()
    with oaken_cache(model, thresholds):
        found = {"Oaken": measured(model, done)}
    text = torch.tensor(np.asarray(calibration), dtype=torch.long)
    for name, quantised in (("QuaRot", quarot_model), ("QServe", qserve_model)):
        done = progress(f"{name} (Table IV)", layers + len(windows))
        found[name] = measured(quantised(model, text, done), done)
    return found


def _held(verdict: str, kind: str) -> str:
    """Return whether a claim holds: that the first is better, or that both are equal.

    A difference that is not significant does not prove equality.
    """
    if kind == "equal":
        return "not measurable" if verdict == "not measurable" else "no"
    return verdict


def _ablation_verdicts(steps: Losses) -> list[Verdict]:
    """Compare the steps of Table VI, and the rivals, where the paper claims an ordering."""

    def pair(first: str, second: str, paper: str) -> Verdict:
        return compared(f"{first} against {second}", steps[first], steps[second]), "better", paper

    return [
        pair("baseline", "post-RoPE INT4 KV", "5.47 < 5.61; 6.24 < 6.52"),
        pair("+ key smoothing", "post-RoPE INT4 KV", "5.51 < 5.61; 6.35 < 6.52"),
        pair("+ key smoothing", "Oaken", "5.51 < 5.53; 6.35 < 6.37"),
        pair("+ key smoothing", "+ INT4 weights", "5.51 < 5.64; 6.35 < 6.79"),
        pair("+ BitMoD weights", "+ INT4 weights", "5.63 < 5.64; 6.72 < 6.79"),
        pair("+ BitMoD weights", "+ E4M3 probabilities", "5.63 < 5.67; 6.72 < 6.81"),
        pair("+ S0E4M4 probabilities", "+ E4M3 probabilities", "5.63 < 5.67; 6.73 < 6.81"),
        pair("+ S0E4M4 probabilities", "+ INT8 activations", "5.63 < 5.72; 6.73 < 6.84"),
        pair("+ E4M3 activations", "+ INT8 activations", "5.65 < 5.72; 6.75 < 6.84"),
        pair("+ E4M3 activations", "QuaRot", "5.65 < 5.70; 6.75 < 6.80"),
        pair("+ E4M3 activations", "QServe", "5.65 < 5.69; 6.75 < 6.79"),
    ]


def _format_verdicts(
    baseline: np.ndarray, rope: Losses, shares: Losses, fused: Losses, linear: Losses
) -> list[Verdict]:
    """Compare formats in the order of Tables II and III, and options that it does not fix."""
    best = shares["FP8-S0E4M4"]
    open_choice = "not stated"
    return [
        (
            compared("pre-RoPE against post-RoPE", rope["pre-RoPE"], rope["post-RoPE"]),
            "better",
            "5.58 < 5.61; 6.52 = 6.52",
        ),
        (
            compared(
                "pre-RoPE against post-RoPE, smoothed",
                rope["pre-RoPE, smoothed"],
                rope["post-RoPE, smoothed"],
            ),
            "better",
            "chosen by model",
        ),
        (
            compared("S0E4M4 against INT8 probabilities", best, shares["INT8"]),
            "better",
            "5.15 < 5.19; 5.95 < 6.06",
        ),
        (
            compared("S0E4M4 against E4M3 probabilities", best, shares["FP8-E4M3"]),
            "better",
            "5.15 < 5.16; 5.95 < 5.99",
        ),
        (
            compared("FP16 against S0E4M4 probabilities", shares["FP16"], best),
            "equal",
            "5.15 = 5.15; 5.95 = 5.95",
        ),
        *(
            (compared(f"half up against {name}", best, shares[name]), "better", open_choice)
            for name in ("FP8-S0E4M4, ties to even", "FP8-S0E4M4, truncated")
        ),
        *(
            (
                compared(f"second level against {name}", fused["over the largest"], fused[name]),
                "better",
                open_choice,
            )
            for name in ("as they are, saturated", "as they are, fifth exponent bit")
        ),
        *(
            (
                compared(
                    f"E4M3 against INT8-SQ activations, W{bits}",
                    linear[f"W{bits}, E4M3"],
                    linear[f"W{bits}, INT8-SQ"],
                ),
                "better",
                paper,
            )
            for bits, paper in (
                ("16", "5.12 < 5.15; 5.85 < 5.92"),
                ("4", "5.24 < 5.37; 6.16 < 6.36"),
            )
        ),
        (
            compared("FP16 against E4M3 activations", baseline, linear["W16, E4M3"]),
            "equal",
            "5.12 = 5.12; 5.84 < 5.85",
        ),
    ]


def _operand_verdicts(single: Losses) -> list[Verdict]:
    """Compare operands at four bits in the order of Figure 3 (b)."""
    paper = "activations and probabilities lose more (Figure 3 (b))"
    return [
        (
            compared(
                f"{first} against {second} at 4 bits", single[f"{first}4"], single[f"{second}4"]
            ),
            "better",
            paper,
        )
        for first in ("W", "KV")
        for second in ("A", "P")
    ]


def _decoding_verdicts(later: Losses) -> list[Verdict]:
    """Compare smoothing factors from the prompt with those from the whole text."""
    return [
        (
            compared("factors of the text against the prompt's", later["prefill"], later["decode"]),
            "better",
            "published perplexities are prefill's",
        ),
        (
            compared(
                "own token in FP16 against quantised at once",
                later["decode, own token in FP16"],
                later["decode"],
            ),
            "better",
            "code keeps it, text does not",
        ),
    ]


def _plain(title: str, baseline: np.ndarray, losses: Losses) -> Table:
    return Table(
        title=title,
        columns=("lane", "perplexity", "over the baseline"),
        rows=p3llm_tables.rows_over(baseline, losses),
    )


def _decoding_table(baseline: np.ndarray, later: Losses, prompt: int) -> Table:
    return Table(
        title="Prefill and decoding",
        columns=("lane", "perplexity", "over the baseline"),
        rows=p3llm_tables.rows_over(baseline, later),
        note=f"All of W4A8KV4P8, over the tokens after a prompt of {prompt}.",
    )
