"""Test the engine's agreement with the algorithm in float64, on real text at a preset's context."""

from golden.veda.voting.voting_agreement import agreement
from hdl.catalog import entry_named
from hdl.paths import ROOT


def test_agreement_equals_the_table_of_the_page() -> None:
    """The same tokens remain, though one vote may exchange the victims of two steps."""
    measured = agreement(entry_named("voting_engine").parameters("smollm2"))
    assert measured.trimmed == 1
    assert measured.survivors == 1
    assert measured.votes > 0.999
    assert measured.same_victim > 0.98
    page = (ROOT / "docs/veda/voting/voting_engine.md").read_text()
    for line in measured.lines():
        assert line in page
