"""The papers' headline claims and what was measured: the tables of `docs/claims.md`.

``make report DOCS=1`` writes them from `synth/reference/papers/*.toml`: a headline with a verdict
is a row.
"""

from collections.abc import Sequence

from hdl.paths import ROOT
from synth.normalised import markdown
from synth.papers import NOT_MEASURED, VERDICTS, Headline, Paper

PAGE = ROOT / "docs" / "claims.md"
NOT_RUN = "not run"


def tables(papers: Sequence[Paper]) -> dict[str, str]:
    """Return the page's tables by name: the verdicts by paper, and the claims of each paper."""
    counts = [["", *VERDICTS]]
    texts = {}
    for paper in papers:
        claims = [headline for headline in paper.headlines if headline.verdict]
        if claims:
            verdicts = [claim.verdict for claim in claims]
            counts.append([paper.title, *(str(verdicts.count(verdict)) for verdict in VERDICTS)])
            texts[paper.name] = _claims(claims)
    return {"verdicts": markdown(counts), **texts}


def _claims(claims: Sequence[Headline]) -> str:
    """Return the table of one paper's claims."""
    head = [
        "claim", "the paper's figure", "needs", "here, on SmolLM2",
        "here, at the published dimensions", "verdict", "command",
    ]  # fmt: skip
    rows = [
        [
            claim.claim,
            claim.paper,
            claim.needs,
            _figure(claim.ours, claim.page) or NOT_MEASURED,
            _figure(claim.published, claim.published_page or claim.page) or NOT_RUN,
            f"**{claim.verdict}**" + (f": {claim.reason}" if claim.reason else ""),
            f"`{claim.command}`" if claim.command else "",
        ]
        for claim in claims
    ]
    return markdown([head, *rows])


def _figure(text: str, page: str) -> str:
    """Return a figure with a link to the page that has it; empty without a figure."""
    return f"[{text}]({page})" if text else ""
