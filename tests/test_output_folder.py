"""The folders that verbs write: what is replaced, what survives, what is refused."""

import fcntl
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl import output_folder as folders
from hdl.errors import UserError
from hdl.output_folder import MANIFEST, output_folder
from hdl.paths import ROOT
from systola.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the build directory be another one: pytest's folders are inside the real one."""
    monkeypatch.setattr(folders, "BUILD", tmp_path / "build")


def write(directory: Path, **texts: str) -> None:
    """Write files whose names have a dot for each ``_`` and a slash for each ``__``."""
    with output_folder(directory) as new:
        for name, text in texts.items():
            file = new / name.replace("__", "/").replace("_", ".")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)


def contents(directory: Path) -> dict[str, str]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(directory).as_posix(): path.read_text() for path in files}


def test_a_second_run_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    write(out, a_v="a", rtl__b_v="b", old__c_v="c")
    (out / "notes.txt").write_text("mine")
    (out / "rtl" / "mine.v").write_text("mine")
    (out / ".git").mkdir()
    os.utime(out / "a.v", (1, 1))
    write(out, a_v="a", d_v="d")
    assert contents(out) == {"a.v": "a", "d.v": "d", "notes.txt": "mine", "rtl/mine.v": "mine"}
    assert (out / ".git").is_dir() and not (out / "old").exists()
    assert (out / "a.v").stat().st_mtime == 1
    assert {path.name for path in out.iterdir()} == {
        "a.v", "d.v", "notes.txt", "rtl", ".git", MANIFEST
    }  # fmt: skip


def test_sha256sum_reads_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "out", a_v="a", rtl__b_v="b")
    command = ["sha256sum", "--check", "--strict", MANIFEST]
    subprocess.run(command, cwd=tmp_path / "out", check=True, capture_output=True)
    (tmp_path / "out" / "a.v").write_text("other")
    assert subprocess.run(command, cwd=tmp_path / "out", capture_output=True).returncode == 1


def change(out: Path) -> None:
    (out / "a.v").write_text("edited")


def link(out: Path) -> None:
    (out / "a.v").unlink()
    (out / "a.v").symlink_to(out / "b.v")


def take_the_name(out: Path) -> None:
    (out / "new.v").write_text("mine")


def lose_the_manifest(out: Path) -> None:
    (out / MANIFEST).unlink()


def reach_outside(out: Path) -> None:
    (out.parent / "victim").write_text("mine")
    digest = hashlib.sha256(b"mine").hexdigest()
    with (out / MANIFEST).open("a") as file:
        file.write(f"{digest}  ../victim\n")


def title_missing(out: Path) -> None:
    text = (out / MANIFEST).read_text()
    (out / MANIFEST).write_text(text.replace("Systola", "somebody"))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (change, "a.v was changed since a verb wrote it"),
        (link, "a.v was changed since a verb wrote it"),
        (take_the_name, "new.v was not written by a verb"),
        (lose_the_manifest, f"contains files and no {MANIFEST}"),
        (reach_outside, f"{MANIFEST} must be a digest and a path"),
        (title_missing, f"{MANIFEST} must be '# Written by Systola"),
    ],
)
def test_what_a_user_did_is_refused_and_kept(
    act: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write(out, a_v="a", b_v="b")
    act(out)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=re.escape(words)) as raised:
        write(out, a_v="other", new_v="new")
    assert "\n" not in str(raised.value)
    assert contents(tmp_path) == before


def test_a_deleted_file_is_written_again(tmp_path: Path) -> None:
    write(tmp_path / "out", a_v="a", b_v="b")
    (tmp_path / "out" / "a.v").unlink()
    write(tmp_path / "out", a_v="a", b_v="b")
    assert contents(tmp_path / "out") == {"a.v": "a", "b.v": "b"}


@pytest.mark.parametrize("step", range(6))
def test_what_is_interrupted_is_completed_by_the_next_run(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, steps = tmp_path / "out", iter(range(9))
    write(out, a_v="a", b_v="b", c_v="c")
    (out / "mine.txt").write_text("mine")
    whole = {"a.v": {"a", "A"}, "b.v": {"b", "B"}, "c.v": {"c"}, "d.v": {"D"}, "mine.txt": {"mine"}}

    def interrupt(original: Callable[..., Path | None]) -> Callable[..., Path | None]:
        def act(path: Path, *arguments: Path, **options: bool) -> Path | None:
            # Each file is renamed into its place; what is left over is removed.
            temporary = path.suffix == ".new"
            counted = path.is_relative_to(out) and temporary == (original.__name__ == "rename")
            if counted and next(steps) == step:
                raise KeyboardInterrupt
            return original(path, *arguments, **options)

        return act

    with monkeypatch.context() as patched:
        for name in ("rename", "unlink"):
            patched.setattr(Path, name, interrupt(getattr(Path, name)))
        with pytest.raises(KeyboardInterrupt):
            write(out, a_v="A", b_v="B", d_v="D")
    left = contents(out)
    assert all(text in whole[name] for name, text in left.items())
    assert left["mine.txt"] == "mine"
    write(out, a_v="A", b_v="B", d_v="D")
    assert contents(out) == {"a.v": "A", "b.v": "B", "d.v": "D", "mine.txt": "mine"}


def test_a_run_that_fails_before_its_end_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), output_folder(tmp_path / "out") as new:
        (new / "a.v").write_text("a")
        raise KeyError
    assert not (tmp_path / "out").exists()


def test_a_build_folder_without_a_manifest_gets_one(tmp_path: Path) -> None:
    rtl = tmp_path / "build" / "unit" / "tiny" / "rtl"
    rtl.mkdir(parents=True)
    (rtl / "a.v").write_text("of an older version")
    write(rtl, a_v="a")
    assert contents(rtl) == {"a.v": "a"}
    (rtl / "a.v").write_text("edited")
    with pytest.raises(UserError, match="was changed"):
        write(rtl, a_v="a")


UNIT = ("--top", "systolic_evictor", "--preset", "tiny")
VERBS = (("verilog", *UNIT), ("export", *UNIT, "--for", "orfs"))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("", "OUT must name a file or a folder, not ''"),
        (".", "not the checkout or above it"),
        ("/", "not the checkout or above it"),
        ("..", "not the checkout or above it"),
        (str(ROOT), "not the checkout or above it"),
        ("hdl", f"contains files and no {MANIFEST}"),
        ("build", f"contains files and no {MANIFEST}"),
        ("README.md", "OUT must be a folder, not the file"),
        ("README.md/x", "Not a directory"),
        ("/dev/null", "OUT must be a folder, not the file"),
        ("/dev/null/x", "Not a directory"),
        ("/proc/x", "OUT cannot be written"),
        ("~nobody-of-that-name/x", "OUT must name a user that exists"),
        ("x" * 300, "File name too long"),
    ],
)
def test_an_out_that_is_none_is_refused(
    verb: tuple[str, ...], out: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, [*verb, "--out", out])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert (ROOT / "pyproject.toml").is_file() and (ROOT / ".git").exists()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_out_is_refused_with_what_a_user_has_there(verb: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("mine.v", "notes.txt", ".git"):
        (tmp_path / name).write_text("mine")
    result = CliRunner().invoke(main, [*verb, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert set(contents(tmp_path)) == {"mine.v", "notes.txt", ".git"}


def test_out_may_be_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        result = CliRunner().invoke(main, [*VERBS[0], "--out", "~/zz"])
        assert result.exit_code == 0
    assert (tmp_path / "zz" / "systolic_evictor.f").is_file()


def test_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    """Between two files of another process the list is not that of what is there."""
    directory = tmp_path / "out"
    write(directory, a_v="one")
    handle = os.open(directory, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    (directory / "a.v").write_text("half")
    late = threading.Thread(target=write, args=(directory,), kwargs={"a_v": "two"})
    late.start()
    late.join(0.2)
    waited = late.is_alive()
    (directory / "a.v").write_text("one")
    os.close(handle)
    late.join()
    assert waited and (directory / "a.v").read_text() == "two"
