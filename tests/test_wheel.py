"""The checkout as a library: its wheel, installed where nothing else of the checkout is."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from hdl.paths import ROOT
from tests.test_style import tracked

PACKAGES = ("hdl", "golden", "testbenches", "synth", "systola", "constraints")


def run(*command: str | Path, directory: Path) -> str:
    """Run a command that succeeds, and knows of no other folder than its own."""
    known = {name: os.environ[name] for name in ("PATH",)} | {"PYTHONWARNINGS": "error"}
    child = subprocess.run(
        command, cwd=directory, env=known, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from what git knows of, so that nothing of an earlier build gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for file in tracked():
        copy = folder / "checkout" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    pip = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(folder / "checkout")], check=True, capture_output=True)
    (built,) = folder.glob("systola-*.whl")
    return built


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel beside the locked packages, away from the checkout."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home / "venv", symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "venv" / "bin" / "python")]
    install = [*pip, "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = (home / "venv").glob("lib/python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_wheel_has_every_file(wheel: Path) -> None:
    inside = set(ZipFile(wheel).namelist())
    files = {str(file.relative_to(ROOT)) for file in tracked()}
    wanted = {name for name in files if name.split("/")[0] in PACKAGES}
    assert len(wanted) > 300
    assert wanted <= inside
    others = {name for name in inside - wanted if ".dist-info/" not in name}
    assert not others


def test_the_readmes_design_is_emitted_and_its_model_runs(home: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (home / "mine.py").write_text(block)
    output = run(home / "venv" / "bin" / "python", "mine.py", directory=home)
    # 64 equal scores: probabilities of 1/64 in UQ0.16.
    assert set(re.findall(r"\d+", output)) == {"1024"}
    text = (home / "rtl" / "attention.v").read_text()
    assert "softmax_4_64_4 softmax" in text
    assert (home / "rtl" / "softmax_4_64_4.v").is_file()
    where = "import hdl, golden.kelle.kelle, testbenches.runner; print(hdl.__file__)"
    found = run(home / "venv" / "bin" / "python", "-c", where, directory=home)
    assert Path(found.strip()).is_relative_to(home)


def test_the_command_writes_where_it_is_called(home: Path) -> None:
    systola = home / "venv" / "bin" / "systola"
    assert "softmax" in run(systola, "list", directory=home)
    settings = ("--top", "softmax", "--preset", "tiny", "--set", "lanes=4")
    run(systola, "verilog", *settings, directory=home)
    assert (home / "build" / "softmax" / "softmax_4_16_4" / "rtl" / "softmax.v").is_file()
    run(systola, "export", *settings, "--for", "fusesoc", directory=home)
    for verb in ("test", "lint", "format", "clean"):
        child = subprocess.run([systola, verb], cwd=home, capture_output=True, text=True)
        assert child.returncode == 2
        assert f"{verb} needs a checkout of Systola" in " ".join(child.stderr.split())


@pytest.mark.full
def test_the_command_simulates(home: Path) -> None:
    systola = home / "venv" / "bin" / "systola"
    output = run(
        systola, "sim", "--top", "activation_functions", "--preset", "tiny", directory=home
    )
    assert "passed" in output
