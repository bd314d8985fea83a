"""The record of the units' ports, and what is printed when one changes."""

import pytest

from hdl.catalog import CATALOG
from testbenches.ports import PORTS, difference, kept_ports, listed

CLOCK = ("input", 1, "clk")
SCORES = [("input", 8, "scores_payload"), ("input", 1, "scores_valid")]
READY = ("output", 1, "scores_ready")


def test_every_unit_and_preset_has_one_line() -> None:
    names = [f"{entry.top} {preset}" for entry in CATALOG for preset in entry.presets]
    assert list(kept_ports()) == sorted(names)
    assert len(PORTS.read_text().splitlines()) == len(names) + 2


def test_a_stream_is_one_word_of_its_payload() -> None:
    assert listed([CLOCK, *SCORES, READY]) == "input clk 1, sink scores 8"
    turned = [("output", 8, "a_b_payload"), ("output", 1, "a_b_valid"), ("input", 1, "a_b_ready")]
    assert listed(turned) == "source a_b 8"


def test_an_incomplete_stream_is_listed_as_ports() -> None:
    incomplete = "input scores_payload 8, input scores_valid 1"
    assert listed(SCORES) == incomplete
    wrong = ("input", 1, "scores_ready")
    assert listed([*SCORES, wrong]) == f"{incomplete}, input scores_ready 1"
    wide = ("output", 2, "scores_ready")
    assert listed([*SCORES, wide]) == f"{incomplete}, output scores_ready 2"


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("input clk 1, sink scores 8", ""),
        ("input clk 1, sink scores 9", "- sink scores 8\n+ sink scores 9"),
        ("input clk 1, source scores 8", "- sink scores 8\n+ source scores 8"),
        ("input clk 1", "- sink scores 8"),
        ("input clk 1, sink scores 8, output done 1", "+ output done 1"),
        ("sink scores 8, input clk 1", "another order"),
    ],
)
def test_difference_lists_what_is_removed_and_added(present: str, expected: str) -> None:
    assert difference("input clk 1, sink scores 8", present) == expected
