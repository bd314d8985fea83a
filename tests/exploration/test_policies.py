"""Sweeps over policies and their fields: points, table, front, and refusals."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hdl.errors import UserError
from synth.gallery import explored
from synth.results import collect_sweeps
from systola import explore as verb
from systola.cli import main
from systola.exploration.policies import policy_points
from systola.exploration.results import read_table
from systola.exploration.sweep import parse_sweep
from tests.generation.small_model import write_small_model


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in ("systola.explore", "systola.perplexity"):
        monkeypatch.setattr(f"{module}.BUILD", tmp_path / "build")
    monkeypatch.setattr(verb, "HOME", tmp_path / "build" / "explore")
    return tmp_path / "build"


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["explore", *options])


def test_points_are_all_legal_combinations() -> None:
    points = policy_points(["h2o", "voting"], parse_sweep("budget=16..64*2 prefill=0,8"))
    names = [point.name for point in points.legal]
    assert len(names) == 2 * 3 * 2 - 2
    assert names[0] == "h2o budget=16 prefill=0" and names[-1] == "voting budget=64 prefill=8"
    assert points.illegal == {
        f"voting budget=16 prefill={prefill}": "budget must be at least reserved = 32, not 16"
        for prefill in (0, 8)
    }
    (layer,) = policy_points(["h2o"], parse_sweep("unit=layer")).legal
    assert layer.parameters == {"parameter.policy": "h2o", "parameter.unit": "layer"}


def test_sweep_has_a_table_and_a_front(build: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from golden.policies.scores import H2O\n\n\nclass Mine(H2O):\n    pass\n\n\n"
        "policy = Mine()\n"
    )
    (tmp_path / "text.txt").write_text(" ".join(str(n * n % 43) for n in range(60)))
    small = write_small_model(tmp_path / "small")
    options = ["--policy", f"h2o {tmp_path / 'mine.py'}", "--sweep", "budget=1,4,8"]
    options += ["--context", "20", "--windows", "2", "--text", str(tmp_path / "text.txt")]
    result = run(*options, "--model", str(small))
    assert result.exit_code == 0, result.output
    assert "illegal: h2o budget=1: window must be an integer" in result.output
    home = build / "explore" / "policies-h2o-mine"
    table = read_table(home / "results.parquet")
    assert [row["point"] for row in table] == [
        f"{name} budget={budget}" for name in ("h2o", "mine") for budget in (4, 8)
    ]
    first, second = table[:2], table[2:]
    for one, other in zip(first, second, strict=True):
        # The subclass of the file decides as H2O.
        assert one["perplexity"] == other["perplexity"] != one["float_perplexity"]
        assert one["evictions_equal"] == one["evictions_checked"] == 2 * (20 - one["budget"] - 1)
    with (home / "pareto-budget-perplexity.csv").open() as lines:
        front = list(csv.DictReader(lines))
    best = {4, 8} if first[0]["perplexity"] > first[1]["perplexity"] else {4}
    assert {int(row["budget"]) for row in front} == best
    assert "full cache" in result.output
    explored_ = json.loads((home / "explore.json").read_text())
    assert explored_["points"] == 4 and explored_["illegal combinations"] == 2
    # The page of all results shows the front.
    (picture,) = explored(collect_sweeps(build), build / "report").pictures
    assert picture.title == "policies-h2o-mine: tokens in a cache against perplexity"


def test_failed_policy_is_named_and_does_not_end_the_sweep(build: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import numpy as np\n\nfrom golden.policies.scores import H2O\n\n\n"
        "class Wrong(H2O):\n    def second_source(self, scores):\n"
        "        return (np.arange(now + 1) for now in range(scores.shape[1]))\n\n\n"
        "policy = Wrong()\n"
    )
    (tmp_path / "text.txt").write_text("1 2 3 4 5 6 7 8 9 10 11 12 13 14")
    small = write_small_model(tmp_path / "small")
    options = ["--policy", f"{tmp_path / 'wrong.py'} h2o", "--sweep", "budget=4"]
    options += ["--context", "14", "--windows", "1", "--text", str(tmp_path / "text.txt")]
    result = run(*options, "--model", str(small))
    assert result.exit_code == 1
    assert "failed: wrong budget=4: the fast form of wrong must decide as" in result.output
    (row,) = read_table(build / "explore" / "policies-wrong-h2o" / "results.parquet")
    assert row["point"] == "h2o budget=4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "h2o", "--sweep", "b=1,2"], "a field of h2o must be one of"),
        (["--policy", "h2o", "--sweep", "budget=few"], "budget must be an integer, not 'few'"),
        (["--policy", "h2o", "--sweep", "budget"], "SWEEP must be pairs such as"),
        (
            ["--policy", "h2o", "--sweep", "budget=1"],
            "SWEEP must have a legal point: 1 are illegal",
        ),
        (["--policy", " ", "--sweep", "budget=8"], "POLICY must name a policy, not be empty"),
        (["--policy", "h20", "--sweep", "budget=8"], "did you mean 'h2o'"),
        (
            ["--policy", "h2o", "--top", "softmax", "--seeds", "2", "--sweep", "budget=8"],
            "TOP, SEEDS must not be given for a sweep of policies",
        ),
        (
            ["--top", "softmax", "--sweep", "lanes=2", "--windows", "8"],
            "WINDOWS must not be given for a sweep of a unit",
        ),
        (
            ["--policy", "h2o", "--sweep", "budget=8", "--windows", "0"],
            "WINDOWS must be at least 1",
        ),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], message: str) -> None:
    result = run(*options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_policies_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            "from golden.policies.scores import H2O\n\npolicy = H2O()\n"
        )
    texts = [str(tmp_path / folder / "mine.py") for folder in ("a", "b")]
    with pytest.raises(UserError, match="POLICY must have different names, not mine twice"):
        policy_points(texts, {})
