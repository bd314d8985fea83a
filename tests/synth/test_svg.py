"""Colours of the plots: one per system, visible on the light and on the dark page."""

from itertools import combinations

import pytest

from synth.papers import read_papers
from synth.svg import DARK, SHAPES, SYSTEMS, VARIABLES

LEAST_CONTRAST = 3.0
"""WCAG 2.1, success criterion 1.4.11: graphical objects next to their background."""


def luminance(color: str) -> float:
    """Return the relative luminance of a colour by WCAG 2.1."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours by WCAG 2.1, 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_black_and_white_have_the_largest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_each_paper_has_one_colour_and_one_marker() -> None:
    names = {paper.name for paper in read_papers()}
    assert set(SYSTEMS) == set(SHAPES) == names
    assert len(set(SHAPES.values())) == len(names)


@pytest.mark.parametrize("colors", (VARIABLES, DARK), ids=("light", "dark"))
def test_the_colours_of_systems_and_bars_are_visible_on_the_page(colors: dict[str, str]) -> None:
    for name in (*SYSTEMS, "ours", "theirs", "ink", "muted"):
        assert contrast(colors[name], colors["sheet"]) >= LEAST_CONTRAST, name


@pytest.mark.parametrize("colors", (VARIABLES, DARK), ids=("light", "dark"))
def test_no_two_variables_have_one_colour(colors: dict[str, str]) -> None:
    assert colors.keys() == VARIABLES.keys()
    equal = [pair for pair in combinations(colors, 2) if colors[pair[0]] == colors[pair[1]]]
    assert not equal, "the colour of a plot could not be replaced by its variable"
