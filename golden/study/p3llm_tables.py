"""P3-LLM's published figures, and the tables that compare measured figures with them."""

from collections.abc import Callable

import numpy as np

from golden.study.comparisons import compared
from golden.study.losses import perplexity_of
from golden.study.outcome import Claim, Plot, Table
from golden.study.p3llm_passes import Losses
from golden.study.p3llm_schemes import OPERAND_BITS
from golden.study.p3llm_speed import (
    BATCHES,
    CHANNELS,
    COLUMN_BYTES,
    LONG_GAP,
    NORMAL_BANDWIDTH,
    NPU_OPERATIONS,
    PIM_BANDWIDTH,
    SHAPES,
    SHORT_GAP,
    UNITS,
    Shape,
    drain_share,
    hbm_pim_layer,
    mean_speedup,
    npu_layer,
    p3llm_layer,
    peak_ratio,
)

ABLATION_THERE = ("5.47", "5.58", "5.61", "5.51", "5.64", "5.63", "5.67", "5.63", "5.72", "5.65")
ABLATION_THERE_3 = ("6.24", "6.52", "6.52", "6.35", "6.79", "6.72", "6.81", "6.73", "6.84", "6.75")
"""Table VI: Llama-2-7B and Llama-3.1-8B on Wikitext-2."""
PROBABILITIES_THERE = {
    "FP16": ("5.15", "5.95"),
    "INT8": ("5.19", "6.06"),
    "FP8-E4M3": ("5.16", "5.99"),
    "FP8-S0E4M4": ("5.15", "5.95"),
}
"""Table II, the same models."""
LINEAR_THERE = {
    "W16, INT8-SQ": ("5.15", "5.92"),
    "W16, E4M3": ("5.12", "5.85"),
    "W4, INT8-SQ": ("5.37", "6.36"),
    "W4, E4M3": ("5.24", "6.16"),
}
"""Table III, the same models."""
Layer = Callable[[Shape, int, bool], float]
"""Function from a shape, a batch and whether drains count to the time of a layer in ns."""
COLUMNS = ("perplexity", "over the baseline", "Llama-2-7B", "Llama-3.1-8B")


def rows_over(baseline: np.ndarray, losses: Losses) -> list[tuple[str, str, str]]:
    """Return each lane's perplexity and its increase over the baseline."""
    return [
        (name, f"{perplexity_of(lost):.3f}", compared(name, baseline, lost).shown())
        for name, lost in losses.items()
    ]


def ablation(steps: Losses) -> Table:
    """Return Table VI."""
    rows = rows_over(steps["baseline"], steps)
    there = zip(ABLATION_THERE, ABLATION_THERE_3, strict=True)
    return Table(
        title="Step by step (Table VI)",
        columns=("quantisation", *COLUMNS),
        rows=[(*row, *figures) for row, figures in zip(rows, there, strict=True)],
        note=(
            "Pre-RoPE and post-RoPE are alternatives; all steps below them are post-RoPE. Queries "
            "are E4M3 from the step of probabilities on. A figure after the sign is the standard "
            "error over blocks of tokens."
        ),
    )


def probabilities(baseline: np.ndarray, shares: Losses) -> Table:
    """Return Table II."""
    return Table(
        title="Probabilities (Table II)",
        columns=("format", *COLUMNS),
        rows=[
            (*row, *PROBABILITIES_THERE.get(row[0], ("-", "-")))
            for row in rows_over(baseline, shares)
        ],
        note="Keys and values in INT4 with smoothing; nothing else is quantised.",
    )


def linear(baseline: np.ndarray, losses: Losses) -> Table:
    """Return Table III."""
    rows = rows_over(baseline, {"W16, FP16": baseline, **losses})
    there = {"W16, FP16": ("5.12", "5.84"), **LINEAR_THERE}
    return Table(
        title="Weights and activations (Table III)",
        columns=("linear layers", *COLUMNS),
        rows=[(*row, *there[row[0]]) for row in rows],
        note="SmoothQuant with alpha 0.5, calibrated on 1,024 tokens of the prose text.",
    )


def published(steps: Losses, rivals: Losses) -> Table:
    """Return Table IV."""
    base = steps["baseline"]
    lanes = {
        "KV4, Oaken": rivals["Oaken"],
        "KV4": steps["+ key smoothing"],
        "W4A8KV4, QuaRot": rivals["QuaRot"],
        "W4A8KV4, QServe": rivals["QServe"],
        "W4A8KV4P8": steps["+ E4M3 activations"],
    }
    there = {
        "KV4, Oaken": ("+1.1 %", "+2.1 %"),
        "KV4": ("+0.7 %", "+1.8 %"),
        "W4A8KV4, QuaRot": ("+4.2 %", "+9.0 %"),
        "W4A8KV4, QServe": ("+4.0 %", "+8.8 %"),
        "W4A8KV4P8": ("+3.3 %", "+8.2 %"),
    }
    return Table(
        title="Keys and values alone, and all (Table IV)",
        columns=("precision", *COLUMNS),
        rows=[(*row, *there[row[0]]) for row in rows_over(base, lanes)],
        note=(
            "There: the change of perplexity on Wikitext-2 from the table's figures. The weights "
            "differ: plain rounding in the row of W4A8KV4P8, while the authors' scripts "
            "(scripts/awq/run_awq_save_4b_model.sh) apply AWQ before they round, and GPTQ in the "
            "rows of QuaRot and QServe. The rows are not the same method."
        ),
    )


def operands(single: Losses) -> Table:
    """Return Figure 3 (b)."""
    return Table(
        title="One operand at a time, in plain integers (Figure 3 (b))",
        columns=("bits", "weights", "activations", "keys and values", "probabilities"),
        rows=[
            (str(n), *(f"{perplexity_of(single[f'{x}{n}']):.2f}" for x in ("W", "A", "KV", "P")))
            for n in OPERAND_BITS
        ],
        note=f"Baseline: {perplexity_of(single['baseline']):.2f}. Figure 3 (b) shows no numbers.",
    )


def speed() -> list[Table]:
    """Return the tables of decode speed and of the cost of group sums."""
    rows = []
    for shape in SHAPES:
        for batch in BATCHES:
            slow = npu_layer(shape, batch).ns, hbm_pim_layer(shape, batch).ns
            ours = p3llm_layer(shape, batch).ns
            drained = p3llm_layer(shape, batch, drains=True).ns
            ratios = [time / ours for time in slow] + [time / drained for time in slow]
            rows.append((shape.name, str(batch), *(f"{ratio:.1f}" for ratio in ratios)))
    drains = [
        (
            str(group),
            str(inputs),
            *(f"{drain_share(inputs, group, free_slots=f):.1%}" for f in (False, True)),
        )
        for group in (128, 64)
        for inputs in (1, 2)
    ]
    return [
        Table(
            title="Decoding speed over NPU and HBM-PIM, by a model",
            columns=("model", "batch", "NPU", "HBM-PIM", "NPU, drains", "HBM-PIM, drains"),
            rows=rows,
            note=(
                "Context 4,096, decoder layers only; bound by memory or arithmetic, without row "
                "changes, refresh or input writes. Drains: group sums are read after each group."
            ),
        ),
        Table(
            title="Reads of group sums, relative to a linear layer's column reads",
            columns=("group", "inputs", "between the reads", "in their free slots"),
            rows=drains,
            note="In the free slots: a lower bound, which ignores that a sum must be complete.",
        ),
    ]


def speed_claims() -> list[Claim]:
    """Compare the speedups with the paper's; a claim holds within 10 %, as the model is simple.

    The verdict uses the time with drains, because the formats have group sums that the hardware
    must read. The figure without drains is for information.
    """

    def near(what: str, paper: float, ours: float, without: float | None = None) -> Claim:
        close = abs(ours / paper - 1) <= 0.1
        shown = f"{ours:.2f}" + (f"; without drains {without:.2f}" if without else "")
        return Claim(what=what, paper=f"{paper:g}", ours=shown, holds="yes" if close else "no")

    def over(what: str, paper: float, baseline: str) -> Claim:
        with_drains, without = (mean_speedup(baseline, drains=drains) for drains in (True, False))
        return near(what, paper, with_drains, without)

    def steps(what: str, paper: float, slow: Layer, fast: Layer) -> Claim:
        with_drains, without = (
            sum(slow(shape, batch, drains) / fast(shape, batch, drains) for shape, batch in few)
            / len(few)
            for drains in (True, False)
        )
        return near(what, paper, with_drains, without)

    few = [(shape, batch) for shape in SHAPES for batch in (2, 4)]

    def hbm_pim(shape: Shape, batch: int, drains: bool) -> float:
        return hbm_pim_layer(shape, batch).ns

    def plain(shape: Shape, batch: int, drains: bool) -> float:
        return p3llm_layer(shape, batch, pump=False, probabilities=False, drains=drains).ns

    def pumped(shape: Shape, batch: int, drains: bool) -> float:
        return p3llm_layer(shape, batch, probabilities=False, drains=drains).ns

    def whole(shape: Shape, batch: int, drains: bool) -> float:
        return p3llm_layer(shape, batch, drains=drains).ns

    return [
        near("peak over HBM-PIM", 8.0, peak_ratio()),
        near("PIM over normal bandwidth", 4.0, PIM_BANDWIDTH / NORMAL_BANDWIDTH),
        over("mean speedup over HBM-PIM", 4.9, "HBM-PIM"),
        over("mean speedup over the NPU", 7.8, "NPU"),
        steps("W4A8KV4 over HBM-PIM, batch 2 and 4", 3.3, hbm_pim, plain),
        steps("throughput-enhanced unit over that", 1.6, plain, pumped),
        steps("8-bit probabilities over that", 1.2, pumped, whole),
    ]


def roofline() -> Plot:
    """Return the plot of throughput over operations per byte for each machine."""
    intensities = [2.0**n for n in range(-1, 9)]
    hbm_pim = CHANNELS * UNITS * 16 * 2 / LONG_GAP
    ours = CHANNELS * UNITS * 64 * 2 / SHORT_GAP

    def roof(peak: float, bandwidth: float) -> list[float]:
        return [min(peak, bandwidth * x) / 1000 for x in intensities]

    return Plot(
        stem="roofline",
        title=f"Rooflines, {COLUMN_BYTES} bytes per column read",
        x="operations/byte",
        y="TOPS",
        curves={
            "NPU": (intensities, roof(NPU_OPERATIONS, NORMAL_BANDWIDTH)),
            "HBM-PIM": (intensities, roof(hbm_pim, PIM_BANDWIDTH)),
            "P3-LLM": (intensities, roof(ours, PIM_BANDWIDTH)),
        },
        logarithmic=True,
    )
