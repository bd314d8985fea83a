"""The tutorials' code runs, and their changes apply to the sources that they name."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from golden.policies.agreement import compare
from golden.policies.registry import policy_named
from hdl.paths import ROOT
from systola.cli import main
from tests.generation.small_model import write_small_model

PAGE = (ROOT / "docs/tutorials/policy.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def tova(tmp_path: Path) -> Path:
    """The policy, saved as the reader saves it."""
    file = tmp_path / "tova.py"
    file.write_text(blocks("python")[0])
    return file


def test_policy_has_under_sixty_lines_and_is_accepted(tova: Path) -> None:
    assert len(tova.read_text().splitlines()) < 60
    assert policy_named(str(tova)).name == "tova"


def test_policy_is_tova(tova: Path) -> None:
    """Compare with the definition: the smallest sum of the last row, over all heads."""
    scores = np.random.default_rng(1).normal(0, 2, (4, 40, 40)).astype(np.float32)
    cached: list[int] = []
    expected = []
    for now in range(40):
        cached.append(now)
        expected.append(np.sort(cached))
        powers = np.exp(scores[:, now, cached].astype(np.float64))
        total = (powers / powers.sum(1, keepdims=True)).sum(0)
        if len(cached) > 16:
            del cached[int(total[:-1].argmin())]
    policy = policy_named(str(tova)).adjusted(16, None).policy
    found = compare(policy.second_source(scores), expected)
    assert found.evictions == 23 and found.equal


def test_perplexity_of_the_policy(tova: Path, tmp_path: Path) -> None:
    """Run the page's command on a small model."""
    folder = write_small_model(tmp_path / "small")
    (tmp_path / "text.txt").write_text(" ".join(str(n % 41) for n in range(80)))
    (command, *_) = re.findall(r"^make perplexity POLICY=tova.py (.*)$", PAGE, re.M)
    given = dict(word.split("=") for word in command.split())
    assert sorted(given) == ["BUDGET", "CONTEXT", "WINDOWS"]
    options = ["--policy", str(tova), "--budget", "16", "--context", "32", "--windows", "2"]
    options += ["--model", str(folder), "--text", str(tmp_path / "text.txt")]
    result = CliRunner().invoke(main, ["perplexity", *options])
    assert result.exit_code == 0, result.output
    assert "30 of 30" in result.output


def test_message_of_the_page_is_the_verbs(tova: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tova.write_text(tova.read_text().replace("importance, query", "importance"))
    monkeypatch.chdir(tova.parent)
    result = CliRunner().invoke(main, ["perplexity", "--policy", "tova.py"])
    (message,) = re.findall(r"^Error: (.*)$", PAGE, re.M)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_changes_of_the_rule_apply_to_the_sources() -> None:
    """Each block of code that the page replaces or removes is in its file once."""
    _policy, old, new, removed = blocks("python")
    rtl = (ROOT / "hdl/veda/voting/vote_comparator.py").read_text()
    model = (ROOT / "golden/veda/voting/vote_threshold.py").read_text()
    assert (rtl.count(old), rtl.count(new), model.count(removed)) == (1, 0, 1)
    for name, code in (("rtl", rtl.replace(old, new)), ("model", model.replace(removed, ""))):
        compile(code, name, "exec")
