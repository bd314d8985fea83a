"""`make generate` from outside: its output, its refusals, and Ctrl-C in the middle of a layer."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from golden.llm.language_model import LanguageModel
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


def test_prints_text_and_table(small: list[str]) -> None:
    result = CliRunner().invoke(main, [*small, "--prompt", "3 1 4", "--tokens", "6"])
    assert result.exit_code == 0, result.output
    text = result.output.splitlines()[0].split()
    assert text[:3] == ["3", "1", "4"] and len(text) == 9
    assert re.search(r"tokens +│ 3 of the prompt, 6 generated", result.output)
    assert re.search(r"golden model +│ tokens, caches, votes and victims are equal", result.output)
    assert re.search(r"evictions +│ 4 ", result.output)
    assert re.search(r"cycles/token +│ [\d,]+ ", result.output)
    assert re.search(r"lower bound +│ [\d,]+ \(\d\d\.\d%\): lines that", result.output)
    assert re.search(r"off-chip bytes/token +│ [\d,]+ ", result.output)
    assert re.search(r"idle simulation +│ [\d,]+ cycles/s; the run: \d\.\d\d", result.output)
    assert "transformers, float32" in result.output
    assert re.search(r"wrote .*record\.json", result.output)


def test_table_has_the_waiting_for_a_memory(small: list[str]) -> None:
    options = ["--memory", "lpddr4 channels=1 data_rate=400", "--clock", "788"]
    arguments = [*small, "--prompt", "3 1 4", "--tokens", "2", "--compare", "0", *options]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"tokens/s +│ [\d,.]+ at 788 MHz", result.output)
    assert re.search(r"external memory +│ lpddr4, 0.8 GB/s", result.output)
    assert re.search(r"waiting for it +│ [\d,]+ cycles \(\d\d.\d%\): .*bandwidth \d", result.output)
    record = record_of(result.output)
    assert record["settings"]["memory"]["channels"] == 1 and record["settings"]["clock"] == 788
    assert record["blocks"][-1]["memory"]["waiting"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "PROMPT must contain at least one token, not be empty"),
        (["--prompt", "  "], "PROMPT must contain at least one token, not be empty"),
        (["--prompt", "1", "--tokens", "0"], "TOKENS must be at least 1, not 0"),
        (["--prompt", "1", "--reserved", "-1"], "RESERVED must be at least 0, not -1"),
        (["--prompt", "1", "--budget", "1"], "BUDGET must be from 2 to the 16 tokens"),
        (["--prompt", "1", "--budget", "17"], "BUDGET must be from 2 to the 16 tokens"),
        (["--prompt", "1 " * 17], "PROMPT must have at most the 16 tokens that a layer caches"),
        (["--prompt", "1 2", "--tokens", "63"], "at most the 64 positions of the context"),
        (["--prompt", "1", "--top", "kelly"], "TOP must be one of"),
        (["--prompt", "1", "--top", "meadow"], "BUDGET and RESERVED are not for meadow"),
        (["--prompt", "1", "--retention", "2drp"], "RETENTION is not for veda, which has no eDRAM"),
        (["--prompt", "1", "--memory", "sram"], "MEMORY must be one of ddr4, hbm2, lpddr4, none"),
        (["--prompt", "1", "--memory", "ddr4 banks=3"], "banks must be a power of two"),
        (["--prompt", "1", "--clock", "500"], "CLOCK needs a MEMORY for veda"),
        (
            ["--prompt", "1", "--memory", "ddr4", "--clock", "0"],
            "CLOCK must be from 1 to 10000 MHz, not 0",
        ),
        (
            ["--prompt", "1 \udcff"],
            "PROMPT must be text in UTF-8, not 0xff after 2 characters",
        ),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retention", "2drb"], "RETENTION must be one of 2drp, uniform, 2drp_540, uniform_540"),
        (["--retention", ""], "RETENTION must be one of"),
        (["--retention", "2drp", "--check", "0"], "RETENTION needs CHECK=1"),
    ],
)
def test_bad_refresh_of_kelle_is_one_sentence(options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["generate", "--top", "kelle", "--prompt", "1 2", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_policy_has_no_refresh() -> None:
    base = ["generate", "--policy", "h2o", "--prompt", "1 2", "--retention", "2drp"]
    result = CliRunner().invoke(main, base)
    assert result.exit_code == 2
    assert "CLOCK, WAVES and PACKED are not for h2o" in " ".join(result.output.split())


def test_full_disk_is_one_sentence(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    # Only the cache's file has no room: emission reserves space of its own.
    without_space = SimpleNamespace(**{**vars(os), "posix_fallocate": full})
    monkeypatch.setattr("testbenches.veda.model_lines.os", without_space)
    result = CliRunner().invoke(main, [*small, "--prompt", "5 6"])
    assert result.exit_code == 2
    assert "is full; finished blocks are kept" in result.output, result.output
    assert not list(verb.BUILD.glob(f"veda/*/generate/cache-{os.getpid()}.memory"))


def _interrupted(command: list[str], words: int) -> tuple[list[str], int, str]:
    """Run a command and interrupt it after some words: return words, exit status and errors."""
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        # A shell lets background processes ignore interrupts, and a child inherits that.
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
    # The prompt and two words; start again if the run ends before the interrupt.
    for _attempt in range(5):
        begun, code, error = _interrupted(command, words=5)
        if code != 0:
            break
    else:
        pytest.fail("five runs ended before they were interrupted")
    assert code == 2, error
    message = re.search(r"interrupted after (\d+) processed .* the same command continues", error)
    assert message, error
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"resumed +│ after {message[1]} processed tokens", again.stdout)
    words = again.stdout.splitlines()[0].split()
    assert len(words) == 23
    assert words[: len(begun) - 1] == begun[:-1]


def test_ctrl_c_after_a_run_keeps_its_table(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Harness, "bare", interrupted)
    result = CliRunner().invoke(main, [*small, "--prompt", "3 1 4", "--tokens", "2"])
    assert result.exit_code == 0, result.output
    assert re.search(r"tokens +│ 3 of the prompt, 2 generated", result.output)
    assert "idle simulation" not in result.output


def test_every_system_has_an_adapter() -> None:
    for module, name in verb.SYSTEMS.values():
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()
        assert name.endswith("System")


def test_failed_comparison_is_a_sentence_after_the_table(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any) -> None:
        raise RuntimeError("size mismatch [red] for lm_head\nand more")

    monkeypatch.setattr("systola.generation.continuation.reference", failing)
    result = CliRunner().invoke(main, [*small, "--prompt", "3 1 4", "--tokens", "2"])
    assert result.exit_code == 0, result.output
    table, sentence = result.output.split("no comparison with transformers, which failed: ")
    assert re.search(r"tokens +│ 3 of the prompt, 2 generated", table)
    assert sentence.splitlines()[0] == "size mismatch [red] for lm_head"
    assert "Traceback" not in result.output


def test_compares_with_the_named_file(small: list[str], tmp_path: Path) -> None:
    """Next to it there is another `model.safetensors`, which continues differently."""
    other = write_small_model(tmp_path / "folder", initializer_range=0.4)
    named = write_small_model(tmp_path / "named") / "model.safetensors"
    file = named.rename(other / "finetune.safetensors")
    arguments = ["--prompt", "3 1 4", "--tokens", "6", "--model", str(file), "--budget", "16"]
    result = CliRunner().invoke(main, [*small, *arguments])
    assert result.exit_code == 0, result.output
    assert re.search(r"transformers, float32 +│ the same tokens", result.output), result.output


def record_of(output: str) -> dict[str, Any]:
    (name,) = re.findall(r"wrote (.*record\.json)", output)
    return json.loads((ROOT / name).read_text())


def test_prompt_reaches_the_model_unchanged_and_the_command_repeats_the_run(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, a line feed, quotes, markup, an emoji; a shell parses the record's command."""
    prompt = " 3\n  1 '[red]$HOME`' \"4\" 😀"
    seen: list[str] = []
    own = LanguageModel.tokens_of

    def tokens_of(model: LanguageModel, text: str) -> list[int]:
        seen.append(text)
        return own(model, text)

    monkeypatch.setattr(LanguageModel, "tokens_of", tokens_of)
    options = ["--tokens", "1", "--compare", "0", "--check", "1"]
    result = CliRunner().invoke(main, [*small, "--prompt", prompt, *options])
    assert result.exit_code == 0, result.output
    assert seen == [prompt] and result.output.startswith(prompt)
    record = record_of(result.output)
    assert record["text of the prompt"] == prompt
    words = shlex.split(record["command"])
    assert words[:2] == ["make", "generate"]
    repeated = ["generate"]
    for word in words[2:]:
        name, _equals, value = word.partition("=")
        repeated += [f"--{name.lower()}", value]
    again = CliRunner().invoke(main, repeated)
    assert again.exit_code == 0, again.output
    assert record_of(again.output)["prompt"] == record["prompt"]
    assert shlex.split(record_of(again.output)["command"]) == words


def test_terminal_shows_markup_and_control_characters_literally(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the prompt, of generated tokens, and of the text that `transformers` generates."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, color_system=None, soft_wrap=True)
    monkeypatch.setattr(verb, "console", terminal)
    text_of = LanguageModel.text_of

    def marked(model: LanguageModel, tokens: list[int]) -> str:
        return text_of(model, tokens) + "[bold]\x1b[2J\x07:smile:" * (len(tokens) > 4)

    monkeypatch.setattr(LanguageModel, "text_of", marked)
    monkeypatch.setattr(
        "systola.generation.continuation.reference", lambda model, prompt, tokens: [44, 44]
    )
    result = CliRunner().invoke(main, [*small, "--prompt", "3 [red] :smile: 1", "--tokens", "2"])
    assert result.exit_code == 0, result.output
    shown = screen.getvalue()
    assert "3 [red] :smile: 1" in shown
    assert shown.count(r"[bold]\x1b[2J\x07:smile:") >= 2
    assert "\x1b[2J" not in shown and "\x07" not in shown


def test_full_standard_output_is_one_sentence(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(verb, "console", Console(file=full, soft_wrap=True))
        result = CliRunner().invoke(main, [*small, "--prompt", "3 1", "--tokens", "1"])
        assert result.exit_code == 2
        assert "or of the standard output is full" in result.output, result.output
        # What the buffer still holds cannot be written either.
        with contextlib.suppress(OSError):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
