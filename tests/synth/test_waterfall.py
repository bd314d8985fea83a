"""The waterfalls: their blocks add up, and the picture is of the figures that are kept."""

import copy

import pytest

from hdl.paths import ROOT
from synth import comparison, waterfall
from synth.papers import read_papers
from synth.waterfall import NOT_DIVIDED, Cause, blocks
from tests.synth.drawings import faults_of, words_of

CAUSES = {paper.name: paper.causes for paper in read_papers()}
SYSTEM = {"name": "Hand", "figures": {"cycles": 150, "bound": 100}}


def test_what_the_causes_leave_is_not_divided() -> None:
    causes = [
        Cause(name="a", cycles=[3, 4], times=2, page=""),
        Cause(name="b", cycles=[6], page=""),
    ]
    assert blocks(SYSTEM, causes) == {"a": 14, "b": 6, NOT_DIVIDED: 30}
    whole = [*causes, Cause(name="c", cycles=[30], page="")]
    assert blocks(SYSTEM, whole) == {"a": 14, "b": 6, "c": 30}


def test_rejects_causes_with_more_cycles_than_the_token() -> None:
    with pytest.raises(ValueError, match="the causes of Hand have 1 cycles too many"):
        blocks(SYSTEM, [Cause(name="a", cycles=[17], times=3, page="")])


@pytest.mark.parametrize("cause", [one for own in CAUSES.values() for one in own], ids=str)
def test_each_addend_of_a_cause_is_on_its_page(cause: Cause) -> None:
    page = (ROOT / "docs" / cause.page).read_text()
    assert all(f" {cycles:,} " in page for cycles in cause.cycles)


def test_the_picture_is_of_the_kept_figures_and_legible() -> None:
    data = comparison.kept()
    assert waterfall.PLOT.read_text() == waterfall.drawing(data, CAUSES), "run make report DOCS=1"
    figure = waterfall.waterfall_plot(data, CAUSES)
    assert not list(faults_of(figure))
    words = " ".join(text for text, _ in words_of(figure))
    assert "lower is better" in words and words.count(NOT_DIVIDED) == 4


def test_a_cause_that_grows_moves_cycles_out_of_the_undivided_block() -> None:
    data = copy.deepcopy(comparison.kept())
    data["systems"]["lad"]["figures"]["cycles"] += 1000
    grown = blocks(data["systems"]["lad"], [Cause(name="a", cycles=[1000], page="")])
    assert grown[NOT_DIVIDED] == blocks(comparison.kept()["systems"]["lad"], [])[NOT_DIVIDED]
