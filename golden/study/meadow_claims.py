"""Comparison of MEADOW's figures of Section 6 with the latency model, overlapped and additive."""

from collections.abc import Sequence
from dataclasses import replace

from golden.study.meadow_latency import (
    MODELS,
    MULTIPLIERS,
    Board,
    Step,
    Work,
    by_meadow,
    by_products,
    choice,
    gain,
    intensity,
    layer_seconds,
    seconds,
    split,
)
from golden.study.outcome import Claim, Plot, Table

PREFILL_PACKING, DECODE_PACKING = 1.6, 1.55
"""Compression of 8-bit weights, with unique matrices; the paper states none for a whole model."""

BANDWIDTHS = (1, 6, 12, 51)
CHOICES = {(1, 14): "TPHS", (1, 96): "TPHS", (51, 14): "GEMM", (51, 96): "GEMM"}
"""Figure 12 (a): selected dataflow by Gb/s and number of processing elements."""

PROMPT = 512
TTFT = {
    ("OPT-125M", 12): (1.5, 1.7),
    ("OPT-1.3B", 12): (1.5, 1.6),
    ("OPT-125M", 1): (1.57, 2.5),
    ("OPT-1.3B", 1): (1.55, 2.0),
}
"""Figure 6: gains for prompts of 64 and 512 tokens, the smaller gain first."""

TBT = {
    ("OPT-125M", 12): (1.4, 1.46),
    ("OPT-1.3B", 12): (1.4, 1.52),
    ("OPT-125M", 1): (1.4, 1.47),
    ("OPT-1.3B", 1): (1.5, 1.53),
}
"""Figure 7: gains for the 64th and the 512th token after a prompt of 512, the smaller first."""

KEPT, SPARSITY = 0.5, 0.5
"""Shares of CTA's tokens and of FlightLLM's multiplications; assumed, the paper states neither."""

SAME = 0.1
"""Maximum relative difference between a gain and the paper's for a claim to hold."""


def latency() -> tuple[list[Table], list[Claim], list[Plot]]:
    """Return all tables, claims and plots of the model."""
    choices, choice_claims = _choices()
    gains, gain_claims = _gains()
    rivals, rival_claim = _rivals()
    vision, vision_claim = _vision()
    tables = [choices, gains, _splits(), rivals, vision, _roofline()]
    return tables, [*choice_claims, *gain_claims, rival_claim, vision_claim], [_plot()]


def _choices() -> tuple[Table, list[Claim]]:
    rows, right = [], {True: 0, False: 0}
    for (gigabits, elements), paper in CHOICES.items():
        work = Work(model=MODELS["OPT-125M"], tokens=PROMPT, context=PROMPT)
        cells = []
        for overlapped in (True, False):
            board = Board(gigabits=gigabits, elements=elements, overlapped=overlapped)
            ways = work.attention_products(board), work.attention_pipelined(board)
            products, pipelined = (1e3 * seconds(steps, board) for steps in ways)
            chosen = choice(work, board)
            right[overlapped] += chosen == paper
            cells += [f"{products:.2f}", f"{pipelined:.2f}", chosen]
        rows.append((f"{gigabits} Gb/s, {elements}", paper, *cells))
    columns = ("GEMM, ms", "TPHS, ms", "choice")
    table = Table(
        title="Selected dataflow, one layer of OPT-125M, 512 tokens",
        columns=(
            "bandwidth, elements",
            "paper",
            *(f"{column}" for column in columns),
            *(f"additive: {column}" for column in columns),
        ),
        rows=rows,
        note="First with overlapped fetch, compute and store, then additive. Weights not packed.",
    )
    claims = [
        Claim(
            what=f"all four choices of Figure 12, {name} model",
            paper="TPHS at 1 Gb/s, GEMM at 51",
            ours=f"{right[overlapped]} of 4",
            holds="yes" if right[overlapped] == len(CHOICES) else "no",
        )
        for name, overlapped in (("overlapped", True), ("additive", False))
    ]
    return table, claims


def _gains() -> tuple[Table, list[Claim]]:
    rows, claims = [], []
    for kind, published in (("TTFT", TTFT), ("TBT", TBT)):
        for (name, gigabits), paper in published.items():
            found = []
            for overlapped in (True, False):
                board = Board(gigabits=gigabits, overlapped=overlapped)
                both = sorted(_both(kind, name, board))
                found.append(tuple(both))
            paper_text = f"{paper[0]:g} to {paper[1]:g}"
            texts = [f"{low:.2f} to {high:.2f}" for low, high in found]
            rows.append((f"{kind}, {name}, {gigabits} Gb/s", paper_text, *texts))
            near = [
                all(abs(a / b - 1) <= SAME for a, b in zip(ours, paper, strict=True))
                for ours in found
            ]
            claims.append(
                Claim(
                    what=f"{kind} gain, {name} at {gigabits} Gb/s",
                    paper=paper_text,
                    ours=f"{texts[0]}; additive {texts[1]}",
                    holds="yes" if any(near) else "no",
                )
            )
    table = Table(
        title="Gains over the baseline",
        columns=("what", "paper", "overlapped", "additive"),
        rows=rows,
        note=f"TTFT of 64 and 512 tokens with weights packed {PREFILL_PACKING:g} times; TBT of the "
        f"64th and the 512th token after {PROMPT} with {DECODE_PACKING:g} times, with keys and "
        "values. Decoder layers only.",
    )
    return table, claims


def _both(kind: str, name: str, board: Board) -> tuple[float, float]:
    """Return the gains for both prompts, or for both tokens."""
    model = MODELS[name]
    if kind == "TTFT":
        first, second = (gain(model, t, t, board, PREFILL_PACKING) for t in (64, PROMPT))
    else:
        first, second = (gain(model, 1, PROMPT + n, board, DECODE_PACKING) for n in (64, 512))
    return first, second


def _splits() -> Table:
    rows = []
    for gigabits in (12, 1):
        for tokens, context, packing in (
            (PROMPT, PROMPT, PREFILL_PACKING),
            (1, PROMPT + 64, DECODE_PACKING),
        ):
            board = Board(gigabits=gigabits)
            work = Work(model=MODELS["OPT-125M"], tokens=tokens, context=context)
            phase = "prefill" if tokens > 1 else "decode"
            for name, groups in (
                ("GEMM", by_products(work, board)),
                ("MEADOW", by_meadow(replace(work, packing=packing), board)),
            ):
                cells = (f"{part:.3f}" for part in split(groups, board))
                rows.append((f"{phase}, {gigabits} Gb/s, {name}", *cells))
    return Table(
        title="Fetch, compute and store of one layer, OPT-125M",
        columns=("what", "fetch, ms", "compute, ms", "store, ms"),
        rows=rows,
        note="Figures 1, 8 and 9: prefill of 512 tokens, and the 64th token after it.",
    )


def _rivals() -> tuple[Table, Claim]:
    rows, shares = [], []
    for gigabits in (1, 6, 12):
        for tokens, context, packing in (
            (PROMPT, PROMPT, PREFILL_PACKING),
            (1, PROMPT + 64, DECODE_PACKING),
        ):
            board = Board(gigabits=gigabits)
            work = Work(model=MODELS["OPT-125M"], tokens=tokens, context=context)
            times = [
                1e3 * layer_seconds(groups, board)
                for groups in (
                    by_products(replace(work, kept=KEPT), board),
                    by_products(replace(work, sparsity=SPARSITY), board),
                    by_meadow(replace(work, packing=packing), board),
                )
            ]
            shares.append(min(times[:2]) / times[2])
            phase = "prefill" if tokens > 1 else "decode"
            rows.append((f"{phase}, {gigabits} Gb/s", *(f"{time:.3f}" for time in times)))
    table = Table(
        title="Rivals on the same board, one layer of OPT-125M, ms",
        columns=("what", "CTA", "FlightLLM", "MEADOW"),
        rows=rows,
        note=f"Figure 11. Assumed: CTA attends to {KEPT:g} of the tokens, FlightLLM executes "
        f"{SPARSITY:g} of the multiplications; the paper states neither.",
    )
    claim = Claim(
        what="end-to-end latency improvement over CTA and FlightLLM",
        paper="over 40 %",
        ours=f"{100 * (min(shares) - 1):.0f} to {100 * (max(shares) - 1):.0f} % over the better",
        holds="yes" if min(shares) >= 1.4 else "no",
    )
    return table, claim


def _vision() -> tuple[Table, Claim]:
    rows, gains = [], []
    for name in ("DeiT-S", "DeiT-B"):
        cells = []
        for gigabits in BANDWIDTHS[:3]:
            board = Board(gigabits=gigabits)
            gains.append(gain(MODELS[name], 197, 197, board, PREFILL_PACKING))
            cells.append(f"{gains[-1]:.2f}")
        rows.append((name, *cells))
    table = Table(
        title="Gains on vision transformers, 197 tokens",
        columns=("model", *(f"{gigabits} Gb/s" for gigabits in BANDWIDTHS[:3])),
        rows=rows,
    )
    near = 1.5 * (1 - SAME) <= min(gains) and max(gains) <= 1.6 * (1 + SAME)
    claim = Claim(
        what="inference latency of DeiT-S and DeiT-B",
        paper="1.5 to 1.6",
        ours=f"{min(gains):.2f} to {max(gains):.2f}",
        holds="yes" if near else "no",
    )
    return table, claim


def _roofline() -> Table:
    rows = []
    model = MODELS["OPT-125M"]
    work = Work(model=model, tokens=PROMPT, context=PROMPT)
    operations = 2 * PROMPT * model.width * (model.width + 2 * PROMPT)
    for gigabits, elements in CHOICES:
        board = Board(gigabits=gigabits, elements=elements)
        peak = 2 * elements * MULTIPLIERS * 0.1
        cells = []
        for steps in (work.attention_products(board), work.attention_pipelined(board)):
            cells += _roof(steps, operations, gigabits, peak)
        rows.append((f"{gigabits} Gb/s, {elements}", f"{peak:.0f}", *cells))
    return Table(
        title="Roofline of the attention, OPT-125M, 512 tokens",
        columns=(
            "bandwidth, elements",
            "peak, GOPS",
            "GEMM, operations/byte",
            "GOPS",
            "TPHS, operations/byte",
            "GOPS ",
        ),
        rows=rows,
    )


def _roof(
    steps: Sequence[Step], operations: float, gigabits: float, peak: float
) -> tuple[str, str]:
    """Return the operations per byte, and the throughput bound by bandwidth or multipliers."""
    each = intensity(steps, operations)
    return f"{each:.0f}", f"{min(peak, each * gigabits / 8):.0f}"


def _plot() -> Plot:
    model = MODELS["OPT-125M"]
    curves = {}
    for tokens in (64, PROMPT):
        for name, overlapped in (("overlapped", True), ("additive", False)):
            boards = [Board(gigabits=gigabits, overlapped=overlapped) for gigabits in BANDWIDTHS]
            gains = [gain(model, tokens, tokens, board, PREFILL_PACKING) for board in boards]
            curves[f"{tokens} tokens, {name}"] = (BANDWIDTHS, gains)
    curves["paper, 64 tokens"] = ((1, 12), (1.57, 1.5))
    curves["paper, 512 tokens"] = ((1, 12), (2.5, 1.7))
    return Plot(
        stem="ttft",
        title="Gain of the time to the first token, OPT-125M",
        x="off-chip bandwidth, Gb/s",
        y="gain over GEMM",
        curves=curves,
        logarithmic=True,
    )
