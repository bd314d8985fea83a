"""A fault is tried in a copy of the checkout, also where nothing was captured before."""

from pathlib import Path

import pytest

from hdl.paths import ROOT
from testbenches import faults
from testbenches.faults import faulty_copy, finds, read_faults

FAULT = read_faults(ROOT / "tests" / "meadow" / "meadow_faults.toml")[0]


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(faults, "BUILD", tmp_path / "build")
    folder = tmp_path / "copy"
    folder.mkdir()
    return faulty_copy(FAULT, folder)


def test_captured_tensors_have_a_folder_before_any_is_captured(copy: Path, tmp_path: Path) -> None:
    (copy / "build" / "llm" / "lock").touch()
    assert (tmp_path / "build" / "llm" / "lock").exists()


def test_check_that_cannot_run_reports_its_output(copy: Path) -> None:
    (copy / "testbenches" / "runner.py").write_text("raise ValueError('this is the reason')\n")
    with pytest.raises(RuntimeError, match=r"combiner tiny .* status 1\n(?s:.*)this is the reason"):
        finds(copy, "combiner tiny")
