"""The page of the papers' claims: what it states of a claim, and that each paper has some."""

import re

from synth import claims
from synth.papers import VERDICTS, Headline, Paper, read_papers

MEASURED = Headline(
    claim="it is fast", paper="very", ours="slow", page="peers.md", command="make sim",
    needs="a wind", verdict="partly", reason="in part",
)  # fmt: skip
ABSENT = Headline(
    claim="it is cheap", paper="10", needs="a shop", verdict="not measured", reason="closed"
)
OTHER = Headline(claim="no verdict", paper="1", ours="2", page="peers.md")


def test_a_claim_has_its_figures_with_links_and_its_verdict_with_the_reason() -> None:
    paper = Paper(name="one", order=1, title="One", headlines=[MEASURED, OTHER, ABSENT])
    tables = claims.tables([paper, Paper(name="two", order=2, title="Two", headlines=[OTHER])])
    assert list(tables) == ["verdicts", "one"]
    assert tables["verdicts"].splitlines()[2:] == ["| One | 0 | 1 | 0 | 1 |"]
    rows = [line.strip("| ").split(" | ") for line in tables["one"].splitlines()[2:]]
    figures = ["[slow](peers.md)", "not run"]
    assert rows == [
        ["it is fast", "very", "a wind", *figures, "**partly**: in part", "`make sim`"],
        ["it is cheap", "10", "a shop", "not measured", "not run", "**not measured**: closed"],
    ]


def test_each_built_paper_has_headline_claims_with_verdicts() -> None:
    papers = [paper for paper in read_papers() if paper.diagram]
    assert len(papers) == 5
    for paper in papers:
        assert len([headline for headline in paper.headlines if headline.verdict]) >= 3


def test_the_page_defines_each_verdict() -> None:
    page = claims.PAGE.read_text()
    assert re.findall(r"^\| (\w[\w ]+) \| [a-z]", page.partition("<!--")[0], re.M)[1:] == [
        *VERDICTS
    ]
