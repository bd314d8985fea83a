import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from synth.figures import completed, kept_figures
from synth.operators import compared_circuits
from synth.papers import read_papers
from synth.plots import Bar, all_peers_plot, bars_plot, peers_plot, place_numbers
from synth.svg import OURS, VARIABLES, svg
from synth.system_sections import cycles_bars, shares_bars
from tests.synth.drawings import faults_of, words_of

GROUPS = compared_circuits(kept_figures()["operators"]["costs"])


def test_the_check_finds_words_on_words_and_words_outside() -> None:
    figure = Figure(figsize=(4, 3))
    figure.text(0.5, 0.5, "one")
    figure.text(0.52, 0.51, "two")
    figure.text(0.95, 0.9, "outside")
    assert list(faults_of(figure)) == ["'outside' is outside the figure", "'one' lies on 'two'"]


@pytest.mark.parametrize("work", GROUPS)
def test_circuits_are_numbered_without_overlap(work: str) -> None:
    figure = peers_plot(GROUPS[work])
    assert not list(faults_of(figure))
    numbers = {str(number) for number in range(1, len(GROUPS[work]) + 1)}
    assert numbers <= {text for text, _ in words_of(figure)}


def test_labels_do_not_overlap_in_the_plot_of_all_circuits() -> None:
    assert not list(faults_of(all_peers_plot(GROUPS)))


close = st.floats(100, 110)
clusters = st.lists(st.tuples(close, close), min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(clusters)
def test_numbers_keep_apart_however_near_the_points_are(points: list) -> None:
    figure = Figure(figsize=(4.9, 3.1))
    axes = figure.subplots()
    axes.set(xlim=(0, 200), ylim=(0, 200), xticks=[], yticks=[])
    place_numbers(axes, [[point] for point in points], [OURS] * len(points), inch=figure.dpi)
    assert not list(faults_of(figure))
    places = axes.transData.transform(points)
    for number, box in words_of(figure):
        assert not any(box.contains(x, y) for x, y in places), number


def test_a_crowd_is_refused() -> None:
    axes = Figure(figsize=(0.9, 0.7), dpi=100).subplots()
    crowd = [[(0.5, 0.5)]] * 40
    with pytest.raises(ValueError, match=r"a plot of 40 circuits has no room for \d+"):
        place_numbers(axes, crowd, [OURS] * 40, inch=100)


def test_labels_do_not_overlap_next_to_bars_of_any_length() -> None:
    bars = [
        Bar(name="a_unit_with_a_very_long_name" * 2, words="1,595,756 of 1,589,248", value=99.0),
        Bar(name="b", words="0", value=0.0, reference=40.0, kept=True),
        Bar(name="c", words="beyond", value=140.0),
    ]
    figure = bars_plot(bars, label="% of the ideal", limits=(0, 100))
    assert not list(faults_of(figure))
    lengths = [patch.get_extents().width for patch in figure.axes[0].patches]
    whole = figure.axes[0].bbox.width
    assert lengths == pytest.approx([0.99 * whole, 0, whole])


def test_the_shares_and_cycles_that_are_kept_can_be_read() -> None:
    results = completed([], kept_figures())
    for paper in read_papers():
        if not paper.parts:
            continue
        of_system = [result for result in results if result.top == paper.name]
        shares = shares_bars(paper, of_system)
        if not any(result.top == paper.name for result in results):
            # Its units exist, but the system itself does not yet.
            assert not shares
            continue
        assert sum(bar.value for bar in shares) == pytest.approx(100)
        theirs = [bar.reference for bar in shares if bar.reference is not None]
        assert sum(theirs) == pytest.approx(100)
        assert not list(faults_of(bars_plot(shares, label="%", limits=(0, 100))))
        assert not list(faults_of(bars_plot(cycles_bars(paper), label="%", limits=(0, 10))))


def test_a_drawing_is_the_same_in_every_run_and_stands_alone() -> None:
    work = next(iter(GROUPS))
    first, second = (svg(peers_plot(GROUPS[work]), "a title") for _ in range(2))
    assert first == second
    assert 'aria-label="a title"' in first
    assert not re.findall(r'(?:href|src)="(?!#)', first)
    assert not re.findall(r"url\((?!#)", first)
    colors = set(re.findall(r"(?:fill|stroke): (#\w+)", first))
    assert not colors & set(VARIABLES.values()), "a colour that the dark page cannot change"
    assert all(f"var(--{name}, " in first for name in ("ours", "theirs", "muted", "sheet"))
