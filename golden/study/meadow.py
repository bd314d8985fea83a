"""The study of MEADOW: packing on real weights, 8-bit perplexity, and its latency model."""

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from golden.llm import text_named
from golden.llm.model import load_tokens
from golden.llm.perplexity import perplexity
from golden.meadow.packing.chunks import Weights
from golden.meadow.packing.weight_packer import Level, pack_matrix
from golden.meadow.quantisation import LINEARS, Scheme, quantised_model
from golden.study.meadow_claims import latency
from golden.study.meadow_packing import LEVELS, Sizes, measured, swept
from golden.study.outcome import Claim, Outcome, Plot, Table
from golden.study.subject import Subject

SCHEMES = {
    "weights, scale per tensor": Scheme(smoothing=None, activations=False),
    "weights, scale per channel": Scheme(scale="channel", smoothing=None, activations=False),
    "W8A8 per tensor, not smoothed": Scheme(smoothing=None),
    "W8A8 per tensor, SmoothQuant": Scheme(),
    "W8A8 per channel, SmoothQuant": Scheme(scale="channel"),
}
CALIBRATION = 1024
"""Tokens of prose that calibrate the scales of activations."""

BLOCK = 256
"""Tokens per block if there are few windows; the standard error is computed over blocks."""

LAYERS = 3
"""Number of layers for which all settings are measured; levels are measured for all layers."""

CHUNKS, PACKETS = (1, 2, 4), (64, 128, 256, 512)
ORIGIN = "Weights are Q4_1 in the GGUF (5 bits/weight), rounded to INT8; "


def study(subject: Subject, *, full: bool) -> Outcome:
    """Run the study; `full` uses more text and sweeps all layers."""
    perplexities, claims, integers = _perplexities(subject)
    tables, more, plots, figures = _packing(subject, integers, full)
    model_tables, model_claims, model_plots = latency()
    return Outcome(
        paper="meadow",
        settings={
            "model": "SmolLM2-135M-Instruct",
            "text": "news",
            "tokens": subject.windows.size,
            "context": subject.windows.shape[1],
        },
        claims=[*claims, *more, *model_claims],
        tables=[perplexities, *tables, *model_tables],
        plots=[*plots, *model_plots],
        figures=figures,
    )


def _perplexities(subject: Subject) -> tuple[Table, list[Claim], dict[str, dict[str, Weights]]]:
    """Run the quantised models; return their perplexities and their integer weights."""
    windows = subject.windows
    blocks = windows if len(windows) > 3 else windows.reshape(-1, min(BLOCK, windows.shape[1]))
    calibration = _calibration(subject)
    done = subject.progress("8-bit models", (len(SCHEMES) + 1) * len(blocks))

    def losses() -> np.ndarray:
        found = []
        for block in blocks:
            found.append(np.log(perplexity(subject.model, block)))
            done()
        return np.array(found)

    found, integers = {"float": losses()}, {}
    for name, scheme in SCHEMES.items():
        with quantised_model(subject.model, scheme, calibration) as matrices:
            integers[name] = dict(matrices)
            found[name] = losses()
    rows = [
        (
            name,
            f"{np.exp(lost.mean()):.2f}",
            f"{np.exp(lost.mean()) * _error(lost - found['float']):.2f}",
            "-" if name == "float" else f"{_bits(integers[name]):.2f}",
        )
        for name, lost in found.items()
    ]
    table = Table(
        title="8-bit perplexity and packed size",
        columns=("decoder's linear layers", "perplexity", "error", "classes, bits/weight"),
        rows=rows,
        note=f"{ORIGIN}{len(blocks)} blocks of {blocks.shape[1]} tokens; the error is one standard "
        "error of the difference to float over blocks. Three layers' matrices are packed.",
    )
    smooth = found["W8A8 per tensor, SmoothQuant"] - found["W8A8 per tensor, not smoothed"]
    claim = Claim(
        what="SmoothQuant makes 8-bit activations usable with a scale per tensor",
        paper="60.7 % accuracy on LAMBADA (OPT-125M, Section 6.1)",
        ours=f"perplexity {rows[4][1]} against {rows[3][1]}, float {rows[0][1]}",
        holds="yes" if smooth.mean() < -2 * _error(smooth) else "no",
    )
    return table, [claim], integers


def _calibration(subject: Subject) -> np.ndarray:
    """Return the prose; for a test model with a small vocabulary, a window of the text."""
    if subject.model.config.vocab_size < 1 << 12:
        return subject.windows[0]
    return load_tokens(text_named("prose"))[:CALIBRATION]


def _error(values: np.ndarray) -> float:
    """Return the standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _some(matrices: Mapping[str, Weights]) -> dict[str, Weights]:
    """Return the matrices of a first, a middle and a last layer."""
    numbers = sorted({int(name.partition(".")[0]) for name in matrices})
    chosen = {numbers[0], numbers[(len(numbers) - 1) // 2], numbers[-1]}
    return {name: one for name, one in matrices.items() if int(name.partition(".")[0]) in chosen}


def _bits(matrices: Mapping[str, Weights]) -> float:
    some = _some(matrices)
    packed = sum(pack_matrix(one, Level.CLASSES).bytes for one in some.values())
    return 8 * packed / sum(one.size for one in some.values())


def _packing(
    subject: Subject, integers: dict[str, dict[str, Weights]], full: bool
) -> tuple[list[Table], list[Claim], list[Plot], dict[str, object]]:
    plain = integers["weights, scale per tensor"]
    done = subject.progress("packing", len(LINEARS) + 3)
    kinds: dict[str, Sizes] = {}
    for kind in LINEARS:
        matrices = {name: one for name, one in plain.items() if name.endswith(kind)}
        kinds[kind] = measured(matrices if full else _some(matrices))
        done()
    names = [level.name.lower() for level in LEVELS]
    libraries = [name for name in kinds[LINEARS[0]].bits if name not in names]
    rows = [
        (
            kind,
            f"{sizes.unique:,.0f}",
            f"{sizes.ratio:.0f}",
            *(f"{sizes.bits[name]:.2f}" for name in (*names, *libraries)),
            f"{sizes.bound:.2f}",
        )
        for kind, sizes in kinds.items()
    ]
    by_kind = Table(
        title="Packed weights, scale per tensor",
        columns=("matrix", "unique pairs", "reduction ratio", *names, *libraries, "entropy"),
        rows=rows,
        note=f"{ORIGIN}{'all' if full else 'three'} layers. Bits/weight with C = 2 in packets of "
        "128 bits, with unique matrices; raw if packing would grow it. The entropy is of single "
        "weights, C = 1." + ("" if libraries else " zstandard and constriction are not installed."),
    )
    sweep = swept(_some(plain), CHUNKS, PACKETS)
    done()
    by_setting = Table(
        title="Packed weights over C and the size of a packet",
        columns=("level, C", *(f"{size} bits" for size in PACKETS)),
        rows=[
            (f"{level}, {chunk}", *(f"{sweep[level, chunk, size]:.2f}" for size in PACKETS))
            for level, chunk in dict.fromkeys((level, chunk) for level, chunk, _ in sweep)
        ],
        note="Bits/weight, with unique matrices, for the matrices of three layers.",
    )
    channel = measured(_some(integers["weights, scale per channel"]))
    some = measured(_some(plain))
    done()
    smoothed = measured(_some(integers["W8A8 per tensor, SmoothQuant"]))
    done()
    best = min(sweep.values())
    claims = [
        Claim(
            what="reduction ratio of the decoder's matrices",
            paper="100 to 1000 (OPT, Figure 4 (a))",
            ours=f"{min(s.ratio for s in kinds.values()):.0f} to "
            f"{max(s.ratio for s in kinds.values()):.0f}",
            holds="yes" if min(s.ratio for s in kinds.values()) >= 100 else "no",
        ),
        *(
            Claim(
                what=f"8-bit weights over {name}",
                paper=paper,
                ours=f"{8 / some.bits[name]:.2f}",
                holds="yes" if 8 / some.bits[name] >= 0.97 * float(paper.split()[0]) else "no",
            )
            for name, paper in (
                ("naive", "1.4 (MLP1 of OPT-125M, Figure 10)"),
                ("packet", "1.54"),
                ("reindexed", "2.63"),
            )
        ),
        Claim(
            what="packed size over the entropy of single weights, best setting",
            paper="-",
            ours=f"{best / some.bound:.3f}; re-indexed, C = 2: "
            f"{some.bits['reindexed'] / some.bound:.3f}",
            holds="yes" if best <= 1.06 * some.bound else "no",
        ),
        Claim(
            what="weights with a scale per channel, which most models have, can be packed",
            paper="-",
            ours=f"re-indexed {channel.bits['reindexed']:.2f} bits/weight, "
            f"classes {channel.bits['classes']:.2f}, entropy {channel.bound:.2f}",
            holds="no" if channel.bits["reindexed"] > 7.9 else "yes",
        ),
    ]
    plot = Plot(
        stem="packing",
        title="Packed size over the size of a packet",
        x="bits/packet",
        y="bits/weight",
        curves={
            f"{level}, C = {chunk}": (PACKETS, [sweep[level, chunk, size] for size in PACKETS])
            for level in ("reindexed", "classes")
            for chunk in (1, 2)
        }
        | {"entropy, C = 1": (PACKETS, [some.bound] * len(PACKETS))},
        logarithmic=True,
    )
    groups = {**kinds, "channel": channel, "smoothed": smoothed}
    figures = {name: asdict(sizes) for name, sizes in groups.items()}
    return [by_kind, by_setting], claims, [plot], {"packing": figures}
