import subprocess
from pathlib import Path

import pytest

from synth import debian


def test_a_package_is_fetched_and_unpacked_without_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake program replaces `apt-get download`; unpacking is real."""
    contents = tmp_path / "contents"
    (contents / "DEBIAN").mkdir(parents=True)
    (contents / "usr/share/thing").mkdir(parents=True)
    (contents / "usr/share/thing/file").write_text("here")
    (contents / "DEBIAN/control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: a thing\n"
    )
    run = subprocess.run
    asked: list[str] = []

    def stand_in(command, **options):
        if command[0] != "apt-get":
            return run(command, **options)
        asked.append(command[-1])
        archive = Path(options["cwd"], "thing_1_all.deb")
        return run(["dpkg-deb", "-b", contents, archive], capture_output=True, check=True)

    monkeypatch.setattr(debian, "UNPACKED", tmp_path / "unpacked")
    monkeypatch.setattr(debian.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(debian.subprocess, "run", stand_in)
    for _ in range(2):
        root = debian.debian_package("thing", provides="usr/share/thing/file")
        assert root is not None and root == tmp_path / "unpacked" / "thing"
        assert (root / "usr/share/thing/file").read_text() == "here"
    assert asked == ["thing"]
    assert debian.debian_package("thing", provides="usr/share/thing/other") is None


def test_a_package_that_cannot_be_had_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "UNPACKED", tmp_path)
    monkeypatch.setattr(debian, "SYSTEM", tmp_path)
    monkeypatch.setattr(debian.shutil, "which", lambda name: None)
    assert debian.debian_package("nothing", provides="usr/share/nothing") is None
    assert debian.opensta() is None
    assert debian.icarus() is None
