"""Sweeps: what a user writes becomes points; what breaks a rule is named and left out."""

from pathlib import Path

import pytest

from hdl.errors import UserError
from systola.exploration.constraint import parse_constraint
from systola.exploration.sweep import Sweep, expand, parse_sweep, read_sweeps, values_of


def test_values_ranges_and_powers() -> None:
    assert parse_sweep("lanes=4,8,16 stages=1..3 width=8..24:8 rows=2..32*2") == {
        "lanes": ("4", "8", "16"),
        "stages": (1, 2, 3),
        "width": (8, 16, 24),
        "rows": (2, 4, 8, 16, 32),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lanes", "SWEEP must be pairs such as lanes=4,8,16, not 'lanes'"),
        ("lanes=4 lanes=8", "vary each parameter once, not lanes twice"),
        ("lanes=4,,8", "a value between two commas"),
        ("lanes=8..4", "a range must have 1 to 10000 values, not '8..4'"),
        ("lanes=0..8*2", "a range must have 1 to 10000 values"),
        ("lanes=1..8:0", "a range must have 1 to 10000 values"),
        ("lanes=1..99999", "a range must have 1 to 10000 values"),
    ],
)
def test_what_is_no_sweep_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace(".", r"\.").replace("*", r"\*")):
        parse_sweep(text)


def test_a_grid_has_every_legal_combination_once() -> None:
    grid = parse_sweep("lanes=2,3,4 scores=8,16")
    points = expand(Sweep(name="a", top="softmax", preset="tiny", grid=grid))
    found = {(p.lanes, p.scores) for p in points.legal.values()}
    assert found == {(2, 8), (2, 16), (4, 8), (4, 16)}
    assert set(points.illegal) == {"lanes=3 scores=8", "lanes=3 scores=16"}
    assert "lanes must be a power of two" in points.illegal["lanes=3 scores=8"]


def test_condition_excludes_points() -> None:
    grid = parse_sweep("lanes=1,2,4 scores=8,16")
    where = "lanes * 4 <= scores and not scores == 8"
    points = expand(Sweep(name="a", top="softmax", preset="tiny", grid=grid, where=where))
    assert {(p.lanes, p.scores) for p in points.legal.values()} == {(1, 16), (2, 16), (4, 16)}
    assert points.excluded == 3


def test_random_points_are_legal_and_repeatable() -> None:
    sweep = Sweep(name="a", top="rms_norm", random=12, seed=5)
    first, again = expand(sweep), expand(sweep)
    assert list(first.legal) == list(again.legal)
    assert len(first.legal) > 6
    assert not first.illegal


def test_a_file_has_named_sweeps(tmp_path: Path) -> None:
    file = tmp_path / "sweeps.toml"
    file.write_text(
        """
        [lanes]
        top = "softmax"
        preset = "tiny"
        for = ["synth"]
        where = "lanes < 8"
        grid = { lanes = [1, "2..4"] }
        [array]
        top = "kelle"
        preset = "tiny"
        seeds = 3
        grid = { array = { rows = [2, 4] } }
        list = [{ heads = 1 }, { heads = 2 }]
        """
    )
    lanes, array = read_sweeps(file)
    assert lanes.grid == {"lanes": (1, 2, 3, 4)}
    assert lanes.verbs == ("synth",)
    assert array.grid == {"array.rows": (2, 4)}
    assert array.points == ({"heads": 1}, {"heads": 2})
    assert array.seeds == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must contain a table for each sweep"),
        ("[a]\nlanes = 4", "a unit's name as top"),
        ("[a]\ntop = 'softmax'\ngird = {}", "did you mean 'grid'"),
        ("[a]\ntop = 'softmax'\ngrid = [1]", "a table as grid"),
        ("[a]\ntop = 'softmax'", "SWEEP must vary something"),
        ("[a]\ntop = 'softmax'\nrandom = -1", "random must be an integer of at least 0, not -1"),
        ("[a]\ntop = 'softmax'\nrandom = 2\nfor = ['lint']", "FOR must be one of"),
        ("['a b']\ntop = 'softmax'\nrandom = 2", "a sweep's name must consist of letters"),
        ("[a", "SWEEP must be pairs or a TOML file"),
    ],
)
def test_what_is_no_file_of_sweeps_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "sweeps.toml"
    file.write_text(text)
    with pytest.raises((UserError, ValueError), match=sentence):
        read_sweeps(file)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [("lane=2", "did you mean 'lanes'"), ("lanes=two", "lanes must be an integer, not 'two'")],
)
def test_a_parameter_that_is_none_ends_the_sweep(grid: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        expand(Sweep(name="a", top="softmax", grid=parse_sweep(grid)))


def test_sweep_without_a_legal_point_reports_the_reason() -> None:
    sweep = Sweep(name="a", top="softmax", grid=parse_sweep("lanes=3,5"))
    with pytest.raises(UserError, match="2 are illegal; the first: lanes must be a power of two"):
        expand(sweep)


def test_a_condition_computes_as_python_does() -> None:
    values = {"lanes": 6, "array.rows": 4, "kind": "silu"}
    for text in (
        "lanes * array.rows == 24",
        "1 < lanes // 2 <= 3",
        "lanes % 4 == 2 or lanes > 100",
        "kind == 'silu' and not -lanes > 0",
        "lanes + 2 - array.rows != 0",
    ):
        assert parse_constraint(text)(values), text
        assert not parse_constraint(f"not ({text})")(values), text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lanes <", "where must be a condition"),
        ("__import__('os')", "where cannot contain"),
        ("lanes.__class__", "a parameter in where"),
        ("lane == 2", "did you mean 'lanes'"),
        ("lanes // 0", "where cannot be computed"),
        ("[1, 2]", "where cannot contain"),
        ("lanes if lanes else 2", "where cannot contain"),
        ("lanes ** 9999", "where cannot contain"),
    ],
)
def test_a_condition_that_is_none_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_constraint(text)({"lanes": 4})


def test_parameters_of_parts_have_dotted_names() -> None:
    grid = parse_sweep("evictor.rows=2,4")
    points = expand(Sweep(name="a", top="evicting_array", preset="tiny", grid=grid))
    rows = [values_of(parameters)["evictor.rows"] for parameters in points.legal.values()]
    assert set(rows) <= {2, 4}
    assert len(rows) + len(points.illegal) == 2
