"""The locality of scores: most frequent intervals, and the sizes of LAD's sets by length."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from golden.lad.synthetic_trace import SyntheticTrace
from golden.study.lad_attention import STATISTICS, LadAttention, Scheme
from golden.study.lad_cycles import Sizes
from golden.study.lad_measured import Trace, interval_shares
from golden.study.outcome import Claim, Plot, Table

STEPS = 64
"""Number of last steps up to a length over which figures are averaged."""
PAPER_SHARES = "top-1 above 74 %, top-1 and 2 above 95 % in all cases (Figure 2 b)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A trace with its origin.

    Parameters
    ----------
    name : str
        Name in tables.
    intervals : int
        Number of intervals I.
    trace : Trace
        The counts, and the shares at `lengths`.
    lengths : tuple[int, ...]
        Context lengths at which figures are reported.
    head_size : int
        Head size d.
    shared : int
        Query heads that share one KV head.
    """

    name: str
    intervals: int
    trace: Trace
    lengths: tuple[int, ...]
    head_size: int
    shared: int = 1

    def means(self, length: int) -> dict[str, float]:
        """Return the mean of each statistic over all heads and the steps up to a length."""
        return dict(zip(STATISTICS, self._window(length).mean((0, 1, 2)).tolist(), strict=True))

    def error(self, length: int, name: str) -> str:
        """Return the standard error of a mean over n as text; heads are the samples."""
        each = self._window(length)[..., STATISTICS.index(name)].mean(2).ravel()
        if len(each) == 1:
            return ""
        return f" ± {each.std(ddof=1) / len(each) ** 0.5 / length:.3f}"

    def sizes(self, length: int) -> Sizes:
        """Return the set sizes of all heads and of the steps up to a length, as flat arrays."""
        window = self._window(length)
        steps = np.arange(length - window.shape[2] + 1, length + 1, dtype=np.float64)

        def of(name: str) -> np.ndarray:
            return window[..., STATISTICS.index(name)].astype(np.float64).ravel()

        return Sizes(
            length=np.broadcast_to(steps, window.shape[:3]).ravel(),
            centres=of("centres"),
            exact=of("exact"),
            active=of("active"),
            changed=of("changed"),
            hits=of("hits"),
        )

    def _window(self, length: int) -> np.ndarray:
        return self.trace.counts[:, :, max(length - STEPS, 0) : length]


def synthetic(scheme: Scheme, drawn: SyntheticTrace, lengths: tuple[int, ...]) -> Source:
    """Run LAD's attention over a synthetic trace."""
    query, key, value = (torch.tensor(part)[None, None] for part in drawn.draw())
    counts, shares = [], []

    def observe(layer: int, n: int, found: torch.Tensor) -> None:
        counts.append(found.view(1, -1).numpy())
        if n in lengths:
            shares.append(interval_shares(attention.layers[layer], n)[np.newaxis])

    attention = LadAttention(scheme, capacity=drawn.length, observe=observe)
    attention(SimpleNamespace(layer_idx=0), query, key, value, None, scaling=1.0)
    trace = Trace(counts=np.stack(counts, 1)[np.newaxis], shares=np.stack(shares))
    return Source(
        name=f"synthetic, I = {scheme.intervals.intervals}",
        intervals=scheme.intervals.intervals,
        trace=trace,
        lengths=lengths,
        head_size=drawn.head_size,
    )


def locality(sources: list[Source]) -> tuple[list[Table], list[Claim], Plot]:
    """Return the data of Figure 2 (b), and the sizes of the sets."""
    share_rows, size_rows, curves = [], [], {}
    for source in sources:
        tops, pairs = [], []
        for number, length in enumerate(source.lengths):
            shares = source.trace.shares[number]
            tops.append(float(shares[..., 0].mean()))
            pairs.append(float(shares[..., :2].sum(-1).mean()))
            m = source.means(length)
            share_rows.append((source.name, str(length), f"{tops[-1]:.1%}", f"{pairs[-1]:.1%}"))
            size_rows.append(
                (
                    source.name,
                    str(length),
                    f"{m['centres'] / length:.3f}",
                    f"{m['active'] / length:.3f}" + source.error(length, "active"),
                    f"{m['changed']:.1f}",
                    f"{m['exact']:.0f}",
                    f"{m['hits'] / m['active']:.1%}",
                    f"{m['missed'] / length:.2%}",
                    f"{m['needless'] / length:.2%}",
                )
            )
        curves[f"{source.name}: top-1"] = (source.lengths, tops)
        curves[f"{source.name}: top-1 and 2"] = (source.lengths, pairs)
    tables = [
        Table(
            title="Probability of a position's most frequent intervals",
            columns=("trace", "length", "top-1", "top-1 and 2"),
            rows=share_rows,
            note="Mean over layers, heads, and positions of at least 16 steps.",
        ),
        Table(
            title="Sizes of LAD's sets",
            columns=(
                "trace",
                "length n",
                "centres C/n",
                "active J/n",
                "changed U",
                "exact M",
                "hits of J",
                "missed",
                "needless",
            ),
            rows=size_rows,
            note=(
                f"Mean over layers, heads and the {STEPS} steps up to a length; ± is the standard "
                "error over heads. Missed: positions outside their mode interval that are not in "
                "J; needless: positions inside it that are in J, with the latest 16 at mode 0."
            ),
        ),
    ]
    plot = Plot(
        stem="locality",
        title="Probability of the most frequent intervals",
        x="positions",
        y="probability",
        curves=curves,
        logarithmic=True,
    )
    return tables, _claims(sources[0]), plot


def _claims(source: Source) -> list[Claim]:
    """Compare the first trace with the paper's figures, at its maximum length."""
    length, shares = source.lengths[-1], source.trace.shares[-1]
    m = source.means(length)
    top, pair = float(shares[..., 0].mean()), float(shares[..., :2].sum(-1).mean())
    hit, missed = m["hits"] / m["active"], m["missed"] / length
    where = f"{source.name}, n = {length}"
    return [
        Claim(
            what="scores remain in their most frequent intervals",
            paper=PAPER_SHARES,
            ours=f"{top:.1%} and {pair:.1%} ({where})",
            holds="yes" if top > 0.74 and pair > 0.95 else "no",
        ),
        Claim(
            what="the last step's active positions contain most of this step's",
            paper="hit ratio above 80 % in most cases",
            ours=f"{hit:.1%} ({where})",
            holds="yes" if hit > 0.8 else "no",
        ),
        Claim(
            what="few positions are identified wrongly",
            paper="about 1 %",
            ours=f"{missed:.2%} ({where})",
            holds="yes" if missed <= 0.015 else "no",
        ),
        Claim(
            what="few keys are centres",
            paper="no figure; 0.98 as threshold (Algorithm 1)",
            ours=f"{m['centres'] / length:.1%} of all keys ({where})",
            holds="yes" if m["centres"] < length / 2 else "no",
        ),
    ]
