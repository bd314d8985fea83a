"""`make generate` from outside: what it prints and refuses, and Ctrl-C in the middle of a layer."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hdl.paths import ROOT
from systola import generate as verb
from systola.cli import main
from testbenches.harness import Harness
from tests.generation.small_model import write_small_model

BASE = ["generate", "--top", "veda", "--preset", "tiny", "--budget", "7", "--reserved", "3"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that choose the small model."""
    return [*BASE, "--model", str(write_small_model(tmp_path_factory.mktemp("small")))]


def test_words_and_table(small: list[str]) -> None:
    result = CliRunner().invoke(main, [*small, "--prompt", "3 1 4", "--tokens", "6"])
    assert result.exit_code == 0, result.output
    text = result.output.splitlines()[0].split()
    assert text[:3] == ["3", "1", "4"] and len(text) == 9
    assert re.search(r"tokens +│ 3 of the prompt, 6 generated", result.output)
    assert re.search(r"golden model +│ tokens, caches, votes and victims are equal", result.output)
    assert re.search(r"evictions +│ 4 ", result.output)
    assert re.search(r"by itself +│ [\d,]+ cycles a second: \d\.\d\d of it", result.output)
    assert "transformers, float32" in result.output
    assert re.search(r"wrote .*record\.json", result.output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "PROMPT must hold at least one token, and is empty"),
        (["--prompt", "  "], "PROMPT must hold at least one token, and is empty"),
        (["--prompt", "1", "--tokens", "0"], "TOKENS must be at least 1, not 0"),
        (["--prompt", "1", "--reserved", "-1"], "RESERVED must be at least 0, not -1"),
        (["--prompt", "1", "--budget", "1"], "BUDGET must be from 2 to the 16 tokens"),
        (["--prompt", "1", "--budget", "17"], "BUDGET must be from 2 to the 16 tokens"),
        (["--prompt", "1 " * 17], "PROMPT must have at most the 16 tokens that a layer caches"),
        (["--prompt", "1 2", "--tokens", "63"], "at most the 64 positions of the context"),
        (["--prompt", "1", "--top", "kelly"], "TOP must be one of"),
        (["--prompt", "1", "--top", "meadow"], "BUDGET and RESERVED are not for meadow"),
        (
            ["--prompt", "1", "--model", "nothing.gguf"],
            "the model file nothing.gguf does not exist",
        ),
    ],
)
def test_bad_input_is_one_sentence(small: list[str], options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, [*small, *options])
    assert result.exit_code == 2
    assert message in result.output, result.output


def test_full_disk_is_one_sentence(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    result = CliRunner().invoke(main, [*small, "--prompt", "5 6"])
    assert result.exit_code == 2
    assert "is full; what was finished is kept" in result.output, result.output
    assert not list(verb.BUILD.glob(f"veda/*/generate/cache-{os.getpid()}.memory"))


def _interrupted(command: list[str], words: int) -> tuple[list[str], int, str]:
    """Run `command` and interrupt it behind so many words: its words, exit status and errors."""
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        # A shell lets what it starts in the background ignore interrupts, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert started.stdout is not None and started.stderr is not None
    read = ""
    while len(read.split()) < words:
        piece = started.stdout.read(1)
        assert piece, started.stderr.read()
        read += piece
    started.send_signal(signal.SIGINT)
    out, error = started.communicate(timeout=60)
    return (read + out).split(), started.returncode, error


def test_ctrl_c_loses_nothing(small: list[str]) -> None:
    command = [sys.executable, "-m", "systola", *small, "--prompt", "2 7 1", "--tokens", "20"]
    command += ["--compare", "0"]
    # The prompt, and the first words behind it; a run that ends before it is told begins anew.
    for _attempt in range(5):
        begun, code, error = _interrupted(command, words=5)
        if code != 0:
            break
    else:
        pytest.fail("five runs ended before they were interrupted")
    assert code == 2, error
    said = re.search(r"interrupted; (\d+) tokens have gone .* the same command goes on", error)
    assert said, error
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"behind {said[1]} tokens, and gone on from there" in again.stdout
    words = again.stdout.splitlines()[0].split()
    assert len(words) == 23
    assert words[: len(begun) - 1] == begun[:-1]


def test_ctrl_c_behind_a_run_leaves_its_table(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Harness, "bare", interrupted)
    result = CliRunner().invoke(main, [*small, "--prompt", "3 1 4", "--tokens", "2"])
    assert result.exit_code == 0, result.output
    assert re.search(r"tokens +│ 3 of the prompt, 2 generated", result.output)
    assert "by itself" not in result.output


def test_every_system_has_an_adapter() -> None:
    for module, name in verb.SYSTEMS.values():
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()
        assert name.endswith("System")
