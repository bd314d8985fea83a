import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from synth.figures import completed, kept_figures
from synth.occupancy import occupancy_bars, occupancy_plot
from synth.operators import compared_circuits
from synth.papers import Paper, read_papers
from synth.plots import Bar, all_peers_plot, bars_plot, peers_plot, place_numbers
from synth.svg import OURS, SMALLEST, SYSTEMS, VARIABLES, svg, width_at
from synth.system_sections import cycles_bars, part_areas
from synth.treemap import squarify, treemap
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
        Bar(name="b", words="0", value=0.0, kept=True),
        Bar(name="c", words="beyond", value=140.0),
    ]
    figure = bars_plot(bars, label="% of the ideal", limits=(0, 100))
    assert not list(faults_of(figure))
    lengths = [patch.get_extents().width for patch in figure.axes[0].patches]
    whole = figure.axes[0].bbox.width
    assert lengths == pytest.approx([0.99 * whole, 0, whole])


@pytest.mark.parametrize("paper", read_papers(), ids=lambda paper: paper.name)
def test_labels_do_not_overlap_in_the_plots_of_a_system(paper: Paper) -> None:
    assert not list(faults_of(bars_plot(cycles_bars(paper), label="%", limits=(0, 10))))
    if paper.occupancy:
        bars = occupancy_bars(paper.name, paper.occupancy)
        assert sum(bar.value for bar in bars) == pytest.approx(100)
        assert not list(faults_of(bars_plot(bars, label="%", limits=(0, 100))))
    of_system = [result for result in completed([], kept_figures()) if result.top == paper.name]
    if areas := part_areas(paper, of_system):
        ordered = sorted(areas.areas.items(), key=lambda item: -item[1])
        shown = [item for item in ordered if item[1] > 0]
        assert not list(faults_of(treemap(shown, SYSTEMS[paper.name])))


def test_labels_do_not_overlap_in_the_plot_of_all_occupancies() -> None:
    known = [(p.name, p.title, p.occupancy) for p in read_papers() if p.occupancy]
    assert len(known) == 5
    assert not list(faults_of(occupancy_plot(known)))


figures = st.lists(st.floats(1, 1000), min_size=1, max_size=14)


@settings(deadline=None, max_examples=60)
@given(figures)
def test_rectangles_have_the_areas_of_the_figures_and_do_not_overlap(values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    places = list(squarify(ordered, (0.0, 0.0, 4.0, 3.0)))
    for value, (left, bottom, width, height) in zip(ordered, places, strict=True):
        assert width * height == pytest.approx(12 * value / sum(ordered))
        assert left >= -1e-9 and left + width <= 4 + 1e-9
        assert bottom >= -1e-9 and bottom + height <= 3 + 1e-9
    for (x, y, width, height), (x_2, y_2, width_2, height_2) in combinations(places, 2):
        across = min(x + width, x_2 + width_2) - max(x, x_2)
        along = min(y + height, y_2 + height_2) - max(y, y_2)
        assert across < 1e-9 or along < 1e-9


def test_a_treemap_refuses_figures_that_increase() -> None:
    with pytest.raises(ValueError, match="must be positive and decrease"):
        list(squarify([1.0, 2.0], (0, 0, 1, 1)))


def test_the_least_width_is_that_of_the_smallest_text() -> None:
    drawing = (
        '<svg viewBox="0 0 360 100"><text style="font-size: 12px"/><text style="font: 700 6px x"/>'
    )
    assert width_at(drawing, SMALLEST) == 540
    assert width_at('<svg viewBox="0 0 360 100">', SMALLEST) == 0


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
