"""Cycles and off-chip words of LAD and of its rivals, for real and synthetic traces."""

from golden.study.lad_cycles import STAGES, Pipeline
from golden.study.lad_locality import Source
from golden.study.outcome import Claim, Plot, Table


def machines(sources: list[Source]) -> tuple[list[Table], list[Claim], list[Plot]]:
    """Return the stages' cycles, the words, and the speedups of each trace."""
    stage_rows, word_rows, speed_rows, speedups = [], [], [], {}
    moved: list[Claim] = []
    for source in sources:
        pipeline = Pipeline(
            head_size=source.head_size, intervals=source.intervals, shared=source.shared
        )
        gains, shares = [], [0.0]
        for length in source.lengths:
            s = source.sizes(length)
            formula, scheduled = pipeline.formula(s), pipeline.scheduled(s)
            where = (source.name, str(length))
            stage_rows.append(
                (
                    *where,
                    *(
                        f"{formula[stage].mean():.0f} / {scheduled[stage].mean():.0f}"
                        for stage in STAGES
                    ),
                    f"{pipeline.shared_columns(s).mean():.0f}",
                    f"{pipeline.fetch(s, prefetch=False).mean():.0f}",
                    f"{pipeline.fetch(s, prefetch=True).mean():.0f}",
                )
            )
            words, full = pipeline.words(s), pipeline.full_attention(s).mean()
            shares = [part.mean() / full for part in words.values()]
            alone = sum(shares) * full / pipeline.full_attention_per_head(s).mean()
            parts = (*(f"{share:.1%}" for share in shares), f"{sum(shares):.1%}")
            word_rows.append((*where, *parts, f"{alone:.1%}"))
            mine = pipeline.interval(s).mean()
            gains.append(float(pipeline.ideal(s).mean() / mine))
            speed_rows.append(
                (
                    *where,
                    f"{mine:.0f}",
                    *(
                        f"{cycles.mean():.0f}"
                        for cycles in (
                            pipeline.ideal(s),
                            pipeline.four_bits(s),
                            pipeline.heavy_hitters(s),
                        )
                    ),
                    f"{gains[-1]:.2f}",
                )
            )
        moved.append(_words_claim(source, sum(shares)))
        speedups[source.name] = (source.lengths, gains)
    tables = [
        Table(
            title="Cycles of the stages per (batch, head) pair",
            columns=(
                "trace",
                "length",
                *STAGES,
                "AC, parallel columns",
                "memory",
                "memory, J of the previous step on chip",
            ),
            rows=stage_rows,
            note=(
                "Equation 7 / with all ceilings, and EAS.2 gathering 32 scores per cycle during "
                "EAS.5. Memory: all words at 256 bytes/cycle, a sixth of 1.5 TB/s at 1 GHz."
            ),
        ),
        Table(
            title="Off-chip words per step, relative to grouped full attention",
            columns=(
                "trace",
                "length",
                "key centres",
                "keys of M",
                "K, V of J",
                "A to F",
                "G",
                "counters",
                "new K, V",
                "all",
                "all, relative to full attention per query head",
            ),
            rows=word_rows,
            note=(
                "Figure 8, left. 100 % is full attention that fetches keys and values once per "
                "group: three query heads for SmolLM2, one for the synthetic trace. In the last "
                "column, 100 % is full attention that fetches them for each query head. FP16 "
                "caches, read and written back; without prefetch."
            ),
        ),
        Table(
            title="Cycles between (batch, head) pairs",
            columns=("trace", "length", "LAD", "ideal", "KV4", "H2O", "LAD's speedup over ideal"),
            rows=speed_rows,
            note=(
                "The slowest stage of Equation 7 or the memory. Ideal: full attention with grouped "
                "heads on seven VPUs and the same memory; KV4 and H2O (10 % and 10 %): the same "
                "machine, for H2O with one cache per query head."
            ),
        ),
    ]
    claims = moved + [_claim(source, speedups[source.name][1][-1]) for source in sources]
    plot = Plot(
        stem="speedup",
        title="Attention: speedup over the ideal accelerator",
        x="positions",
        y="speedup",
        curves=speedups,
        logarithmic=True,
    )
    return tables, claims, [plot]


def _claim(source: Source, gain: float) -> Claim:
    return Claim(
        what=f"attention is faster than on the ideal accelerator: {source.name}",
        paper="yes, the more the longer (Figure 8)",
        ours=f"{gain:.2f} times at {source.lengths[-1]} positions",
        holds="yes" if gain > 1 else "no",
    )


def _words_claim(source: Source, share: float) -> Claim:
    return Claim(
        what=f"attention moves fewer words than grouped full attention: {source.name}",
        paper="yes, the fewer the longer (Figure 8)",
        ours=f"{share:.1%} at {source.lengths[-1]} positions",
        holds="yes" if share < 1 else "no",
    )
