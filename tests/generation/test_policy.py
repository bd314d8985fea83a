"""`make generate POLICY=`: text, table and record, an interrupted run, and its refusals."""

import json
import re
import shlex
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hdl.paths import ROOT
from systola.cli import main
from systola.generation import policy as adapter
from tests.generation.small_model import write_small_model

WRONG = str(ROOT / "tests" / "policies" / "wrong.py")

PROMPT = "3 1 4 1 5"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that choose the small model."""
    return ["--model", str(write_small_model(tmp_path_factory.mktemp("small")))]


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["generate", *options])


def record_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    (name,) = re.findall(r"wrote (.*record\.json)", result.output)
    return json.loads((ROOT / name).read_text())


def test_table_states_that_no_verilog_runs(small: list[str]) -> None:
    options = ["--policy", "voting", "--budget", "8", "--reserved", "4", "--tokens", "12"]
    result = run(*small, *options, "--prompt", PROMPT)
    record = record_of(result)
    assert len(result.output.splitlines()[0].split()) == 5 + 12
    assert re.search(r"Verilog +│ none runs: the model in float32", result.output)
    assert re.search(r"cached tokens +│ at most 8; one cache per layer", result.output)
    # The last token is not processed; two layers have one cache each.
    assert re.search(rf"evictions +│ {2 * (5 + 11 - 8)} ", result.output)
    assert re.search(r"evictions equal to float64 +│ 7 of 7", result.output)
    assert re.search(r"evictions equal to bit-exact +│ \d of 7", result.output)
    assert "make generate TOP=veda BUDGET=8 RESERVED=4" in result.output
    assert record["finished"] and len(record["generated"]) == 12
    assert [block["count"] for block in record["blocks"]] == [5, *[1] * 11]
    assert "verilog_digest" not in record
    assert record["policy"].startswith("Voting(budget=8")
    words = shlex.split(record["command"])
    assert words[:2] == ["make", "generate"] and "POLICY=voting" in words


def test_full_cache_generates_the_text_of_transformers(small: list[str]) -> None:
    full = run(*small, "--policy", "full_cache", "--prompt", PROMPT, "--tokens", "9")
    assert re.search(r"transformers, float32 +│ the same tokens", full.output), full.output
    assert re.search(r"cached tokens +│ all;", full.output)
    few = run(*small, "--policy", "streaming_llm", "--budget", "6", "--prompt", PROMPT)
    assert "differs from token" in few.output, few.output


def test_interrupted_run_continues(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--policy", "h2o", "--budget", "8", "--prompt", PROMPT, "--tokens", "8"]
    options += ["--compare", "0"]
    expected = record_of(run(*small, *options))["generated"]
    own, calls = adapter.PolicySystem.run, [0]

    def interrupted(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 5:
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(adapter.PolicySystem, "run", interrupted)
    result = run(*small, *options)
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "interrupted after 8 processed and 4 generated tokens; the same command" in words
    result = run(*small, *options)
    assert calls[0] == 5 + 4
    assert re.search(r"resumed +│ after 8 processed tokens", result.output), result.output
    assert re.search(r"evictions equal to float64 +│ 3 of 3", result.output)
    assert record_of(result)["generated"] == expected


def test_wrong_fast_form_is_refused(small: list[str]) -> None:
    result = run(*small, "--policy", WRONG, "--budget", "8", "--prompt", "1 2 3")
    assert result.exit_code == 2
    assert "the fast form of wrong must decide as its second source" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of TOP and POLICY must be given, not none"),
        (["--top", "veda", "--policy", "voting"], "TOP and POLICY must be given, not both"),
        (["--policy", ""], "POLICY must be one of full_cache"),
        (["--policy", "h20"], "did you mean 'h2o'"),
        (["--policy", "none.py"], "POLICY must be a file that exists, not 'none.py'"),
        (["--policy", "h2o", "--reserved", "4"], "RESERVED is not for h2o"),
        (["--policy", "h2o", "--budget", "1"], "window must be an integer from 1 to 1048576"),
        (["--policy", "h2o", "--set", "a=1"], "MEMORY, CLOCK, WAVES and PACKED are not for h2o"),
        (["--policy", "h2o", "--waves", "1"], "MEMORY, CLOCK, WAVES and PACKED are not for h2o"),
        (["--policy", "h2o", "--tokens", "0"], "TOKENS must be at least 1, not 0"),
        (["--policy", "h2o", "--tokens", "60"], "at most the 64 positions of the context"),
    ],
)
def test_bad_input_is_one_sentence(small: list[str], options: list[str], message: str) -> None:
    result = run(*small, "--prompt", PROMPT, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
