"""The study of LAD: generated text, perplexity, locality of scores, and its cycle model."""

import numpy as np

from golden.lad.synthetic_trace import SyntheticTrace
from golden.llm import text_named
from golden.llm.model import GGUF_SHA256, SMOLLM2, load_tokens
from golden.study.lad_fidelity import predictions, scheme, texts
from golden.study.lad_locality import Source, locality, synthetic
from golden.study.lad_machines import machines
from golden.study.lad_measured import Laboratory
from golden.study.lad_traffic import real as real_group
from golden.study.lad_traffic import synthetic as synthetic_head
from golden.study.lad_traffic import traffic_table
from golden.study.lad_union import LAYERS, union_table
from golden.study.outcome import Outcome
from golden.study.subject import Subject
from hdl.paths import BUILD

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
TRACED, FULL_TRACED = 1024, 2048
"""Tokens of the traces."""
INTERVALS = (5, 8, 12)


def study(subject: Subject, *, full: bool) -> Outcome:
    """Run the study; `full` uses more variants, more text and longer traces."""
    laboratory = Laboratory(subject.model, BUILD / "study" / "lad", GGUF_SHA256, subject.progress)
    windows = subject.windows[: 3 if full else 1]
    generated, rouge_claims, scores = texts(laboratory, full=full)
    predicted, perplexity_claims, perplexities = predictions(laboratory, windows, full=full)
    traced = FULL_TRACED if full else TRACED
    real = [_real(laboratory, intervals, traced) for intervals in INTERVALS]
    drawn = SyntheticTrace()
    made = synthetic(scheme(5, centres=True), drawn, _lengths(drawn.length))
    sources = [*real, made]
    locality_tables, locality_claims, locality_plot = locality(sources)
    machine_tables, machine_claims, machine_plots = machines(sources)
    decodings = [*(real_group(640, layer) for layer in LAYERS), synthetic_head(traced)]
    streams = traffic_table(decodings)
    return Outcome(
        paper="lad",
        settings={
            "model": "SmolLM2-135M-Instruct",
            "text": "news",
            "tokens": windows.size,
            "traced": traced,
        },
        claims=[*rouge_claims, *perplexity_claims, *locality_claims, *machine_claims],
        tables=[generated, predicted, *locality_tables, *machine_tables, streams, union_table()],
        plots=[locality_plot, *machine_plots],
        figures={"rouge1": scores, "perplexity": perplexities},
    )


def _real(laboratory: Laboratory, intervals: int, traced: int) -> Source:
    """Trace the first tokens of the news text."""
    tokens = load_tokens(text_named("news"))[:traced].astype(np.int64)
    lengths = _lengths(traced)
    trace = laboratory.trace(
        f"trace: I = {intervals}", scheme(intervals, centres=True), tokens, lengths
    )
    return Source(
        name=f"SmolLM2, I = {intervals}",
        intervals=intervals,
        trace=trace,
        lengths=lengths,
        head_size=SMOLLM2.head_size,
        shared=SMOLLM2.heads // SMOLLM2.kv_heads,
    )


def _lengths(longest: int) -> tuple[int, ...]:
    return tuple(length for length in LENGTHS if length <= longest)
