"""The verb `perplexity`: its losses, its kept windows, and its refusals."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hdl.paths import ROOT
from systola import perplexity as verb
from systola.cli import main
from tests.generation.small_model import write_small_model

WRONG = str(ROOT / "tests" / "policies" / "wrong.py")

TEXT = " ".join(str(digit) for digit in np.random.default_rng(3).integers(0, 45, 200))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that choose the small model and a text of its words."""
    folder = write_small_model(tmp_path_factory.mktemp("small"))
    (folder / "text.txt").write_text(TEXT)
    return ["--model", str(folder), "--text", str(folder / "text.txt"), "--context", "16"]


def run(top: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["perplexity", "--top", top, *options])


def run_policy(*options: str) -> Result:
    return CliRunner().invoke(main, ["perplexity", *options])


def record_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    match = re.search(r"wrote (\S+)", result.output)
    assert match is not None
    return json.loads((ROOT / match[1]).read_text())


def test_loss_is_that_of_torch() -> None:
    import torch

    rng = np.random.default_rng(1)
    logits, tokens = rng.normal(0, 9, (12, 40)), rng.integers(0, 40, 12).tolist()
    theirs = torch.nn.functional.cross_entropy(
        torch.tensor(logits[:-1]), torch.tensor(tokens[1:]), reduction="mean"
    )
    assert verb.window_loss(logits, tokens) == pytest.approx(float(theirs), rel=1e-12)
    # The last token has no successor in the window, so that its logits do not count.
    logits[-1] = 0
    assert verb.window_loss(logits, tokens) == pytest.approx(float(theirs), rel=1e-12)


def test_standard_error_is_that_of_the_mean() -> None:
    mean, error = verb.mean_and_error([1.0, 2.0, 4.0])
    assert mean == pytest.approx(7 / 3)
    assert error == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2 / 3))
    assert verb.mean_and_error([1.0]) == (1.0, None)


def test_record_has_the_losses_of_all_windows(small: list[str]) -> None:
    result = run("lad", *small, "--preset", "tiny", "--windows", "3")
    record = record_of(result)
    assert len(record["losses"]) == len(record["float_losses"]) == 3
    assert record["tokens"] == 45
    assert record["perplexity"] == pytest.approx(math.exp(np.mean(record["losses"])))
    # FP16 changes a loss, and not by much.
    difference = np.abs(np.subtract(record["losses"], record["float_losses"]))
    assert 0 < difference.max() < 0.2


def test_finished_windows_are_kept(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    own = verb.FloatModel.window

    def window(*arguments: Any) -> verb.Arrays:
        counted.append(1)
        return own(*arguments)

    monkeypatch.setattr(verb.FloatModel, "window", window)
    # A text of its own, so that no earlier run has kept its windows.
    other = Path(small[3]).with_name("other.txt")
    other.write_text(TEXT[::-1].replace("0", "7"))
    options = [*small, "--text", str(other)]
    assert run("float32", *options, "--windows", "2").exit_code == 0
    first = len(counted)
    assert run("float32", *options, "--windows", "3").exit_code == 0
    assert first in (0, 2) and len(counted) in (0, first + 1)
    counted.clear()
    assert run("float32", *options, "--windows", "3").exit_code == 0
    assert not counted


@pytest.mark.parametrize(
    ("top", "options", "message"),
    [
        ("kelly", [], "did you mean 'kelle'"),
        ("lad", ["--windows", "0"], "WINDOWS must be at least 1, not 0"),
        ("lad", ["--windows", "13"], "WINDOWS must be at most 12, the whole windows of 16 tokens"),
        ("lad", ["--context", "1"], "CONTEXT must be at least 2, not 1"),
        (
            "float32",
            ["--context", "65", "--windows", "2"],
            "CONTEXT must be at most the 64 positions of float32",
        ),
        ("lad", ["--preset", "tiny", "--budget", "7"], "BUDGET and RESERVED are not for lad"),
        ("lad", ["--retention", "2drp"], "RETENTION is not for lad, which has no eDRAM"),
        ("kelle", ["--retention", "uniforn"], "did you mean 'uniform'"),
        ("float32", ["--retention", "2drp"], "RETENTION is not for float32"),
        ("float32", ["--preset", "tiny"], "PRESET, PARAMETERS and SET are not for float32"),
        ("lad", ["--text", "nothing.txt"], "TEXT must be news, prose or a file;"),
        ("lad", ["--set", "no_such=1"], "no_such"),
    ],
)
def test_bad_input_is_one_sentence(
    small: list[str], top: str, options: list[str], message: str
) -> None:
    result = run(top, *small, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_text_that_is_not_utf_8_is_refused(small: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"1 2 \xff 3")
    result = run("float32", *small, "--text", str(tmp_path / "text"))
    assert result.exit_code == 2 and "is not at byte 4" in result.output


def test_full_cache_is_the_model_in_float32(small: list[str]) -> None:
    record = record_of(run_policy(*small, "--policy", "full_cache", "--windows", "2"))
    assert record["losses"] == pytest.approx(record["float_losses"], rel=1e-6)


@pytest.mark.parametrize("name", ["h2o", "voting", "aerp_centred", "streaming_llm"])
def test_policy_evicts_as_its_second_source(small: list[str], name: str) -> None:
    options = ["--policy", name, "--budget", "8", "--windows", "3"]
    options += ["--reserved", "4"] if name == "voting" else []
    record = record_of(run_policy(*small, *options))
    evictions, same = np.sum(record["samples"], axis=0)[0]
    assert evictions == same == 3 * (16 - 8 - 1)
    assert np.abs(np.subtract(record["losses"], record["float_losses"])).min() > 0


def test_wrong_fast_form_is_refused(small: list[str]) -> None:
    result = run_policy(*small, "--policy", WRONG, "--budget", "8")
    assert result.exit_code == 2
    assert "the fast form of wrong must decide as its second source" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of TOP and POLICY must be given, not none"),
        (["--policy", "h2o", "--top", "veda"], "one of TOP and POLICY must be given, not both"),
        (["--policy", "h20"], "did you mean 'h2o'"),
        (["--policy", "none.py"], "POLICY must be a file that exists, not 'none.py'"),
        (["--policy", "h2o", "--retention", "2drp"], "RETENTION is not for h2o"),
        (["--policy", "h2o", "--set", "a=1"], "PRESET, PARAMETERS and SET are not for h2o"),
        (["--policy", "h2o", "--reserved", "4"], "RESERVED is not for h2o"),
        (["--policy", "voting", "--budget", "8"], "budget must be at least reserved = 32, not 8"),
    ],
)
def test_bad_policy_is_one_sentence(small: list[str], options: list[str], message: str) -> None:
    result = run_policy(*small, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
