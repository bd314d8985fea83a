"""Set-up of ``.venv``: what is installed when, and what is left where it fails."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from hdl.paths import ROOT
from systola import environment, installer
from systola.environment import Lock, is_complete
from systola.installer import Environment, InstallationError
from systola.pip_settings import uv_settings


class Scene:
    """An environment with groups of small packages, which are installed from a folder of wheels."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.locks = folder / "locks"
        self.locks.mkdir()
        self.folder = folder / ".venv"
        self.environment = self.another()
        self.commands: list[Sequence[str]] = []
        self.lock("base", "# a base, 1 MB\nalpha==1.0\n")
        self.lock("sim", "# a simulator, 1 MB\nbeta==1.0\n")
        monkeypatch.setattr(environment, "LOCKS", self.locks)
        own = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}
        own["PIP_FIND_LINKS"] = str(self.wheels)
        monkeypatch.setattr(installer, "USER_ENVIRONMENT", own)
        run = Environment._run

        def recorded(self_: Environment, command: Sequence[str], cwd: Any = None) -> Any:
            self.commands.append(command)
            return run(self_, command, cwd)

        monkeypatch.setattr(Environment, "_run", recorded)

    def another(self) -> Environment:
        """Return the environment with uv, which is faster than pip, if this Python has it."""
        found = Environment(self.folder)
        uv = Path(sys.prefix) / "bin" / "uv"
        if uv.is_file():
            options = ["--no-index", "--find-links", str(self.wheels), "--no-cache"]
            command = [str(uv), "pip", "install", "--python", str(found.python), *options]
            vars(found)["_uv"] = command
        return found

    def lock(self, group: str, text: str) -> None:
        (self.locks / f"{group}.lock").write_text(text)

    def wheel(self, name: str, version: str = "1.0") -> None:
        """Write a wheel with one module."""
        folder = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": f"VERSION = {version!r}\n",
            f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        # pip keeps the sizes of the record, uv computes them.
        rows = [f"{file},,{len(text)}\n" for file, text in files.items()]
        record = "".join([*rows, f"{folder}/RECORD,,\n"])
        with ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for file, text in (files | {f"{folder}/RECORD": record}).items():
                archive.writestr(file, text)

    @property
    def site(self) -> Path:
        (site,) = self.environment.folder.glob("lib/python*/site-packages")
        return site

    def installations(self) -> list[Sequence[str]]:
        return [command for command in self.commands if "--requirement" in command]

    def complete(self, group: str) -> bool:
        return is_complete(Lock(self.locks / f"{group}.lock"), self.environment.folder)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_groups_are_installed_once_and_announced(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.wheel("alpha")
    scene.wheel("beta")
    scene.environment.install(["base"])
    assert (scene.site / "alpha.py").is_file() and not (scene.site / "beta.py").exists()
    scene.environment.install(["base", "sim"])
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" (")[0] for line in lines] == [
        "installing base: a base, 1 MB",
        "installing sim: a simulator, 1 MB",
    ]
    before = len(scene.commands)
    scene.environment.install(["base", "sim"])
    assert len(scene.commands) == before


def test_an_environment_without_stamps_is_kept(scene: Scene) -> None:
    """Earlier versions wrote one stamp for all packages."""
    scene.wheel("alpha")
    scene.environment.install(["base"])
    (scene.environment.folder / "groups" / "base").unlink()
    (scene.environment.folder / "ready").write_text("alpha==1.0\n")
    before = len(scene.commands)
    scene.environment.install(["base"])
    assert scene.complete("base") and len(scene.commands) == before


def test_pip_installs_where_it_cannot_install_uv(scene: Scene) -> None:
    scene.wheel("alpha")
    Environment(scene.folder).install(["base"])
    assert scene.complete("base")
    (command,) = scene.installations()
    assert "--no-compile" in command and not any(word.endswith("/uv") for word in command)


def test_a_changed_lock_installs_the_new_version(scene: Scene) -> None:
    scene.wheel("alpha")
    scene.environment.install(["base"])
    scene.wheel("alpha", "1.1")
    scene.lock("base", "# a base, 1 MB\nalpha==1.1\n")
    assert not scene.complete("base")
    scene.environment.install(["base"])
    assert scene.complete("base")
    assert "1.1" in (scene.site / "alpha.py").read_text()


@pytest.mark.parametrize("damage", ("missing", "record"))
def test_an_interrupted_package_is_installed_again(scene: Scene, damage: str) -> None:
    scene.wheel("alpha")
    scene.environment.install(["base"])
    (scene.environment.folder / "groups" / "base").unlink()
    if damage == "missing":
        (scene.site / "alpha.py").unlink()
    else:
        (scene.site / "alpha-1.0.dist-info" / "RECORD").unlink()
        (scene.site / "alpha.py").write_text("VERS")
    scene.environment.install(["base"])
    assert scene.complete("base")
    assert (scene.site / "alpha.py").read_text() == "VERSION = '1.0'\n"


def test_a_package_with_another_size_is_installed_again(scene: Scene) -> None:
    scene.wheel("alpha")
    scene.environment.install(["base"])
    (scene.environment.folder / "groups" / "base").unlink()
    (scene.site / "alpha.py").write_text("VERS")
    scene.environment.install(["base"])
    assert (scene.site / "alpha.py").read_text() == "VERSION = '1.0'\n"


def test_corrupted_complete_group_is_repaired_on_request(scene: Scene) -> None:
    scene.wheel("alpha")
    scene.environment.install(["base"])
    (scene.site / "alpha.py").unlink()
    scene.environment.install(["base"])
    assert not (scene.site / "alpha.py").exists()
    scene.environment.install(["base"], verify=True)
    assert (scene.site / "alpha.py").exists()


def test_group_is_incomplete_if_a_package_is_unavailable(scene: Scene) -> None:
    scene.wheel("alpha")
    scene.environment.install(["base"])
    with pytest.raises(
        InstallationError, match=r"^sim cannot be installed: .*set-up.log contains all"
    ):
        scene.environment.install(["sim"])
    assert scene.complete("base") and not scene.complete("sim")
    scene.wheel("beta")
    scene.environment.install(["sim"])
    assert scene.complete("sim")


def test_a_disk_without_space_is_named_before_an_installation(scene: Scene) -> None:
    scene.lock("base", "# a base, 900000000 MB\nalpha==1.0\n")
    with pytest.raises(
        InstallationError, match=r"^base needs 1,170,000,000 MB in .*: [0-9,]+ MB are free$"
    ):
        scene.environment.install(["base"])
    assert not scene.installations() and not scene.complete("base")


def test_a_machine_without_pip_is_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    monkeypatch.setattr(installer.shutil, "which", lambda name: None)
    (scene.environment.folder / "tmp").mkdir(parents=True)
    with pytest.raises(InstallationError, match="python has no pip: Debian: apt install"):
        scene.environment._pip("config", "list")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("dns error: failed to lookup address", "the package index is unreachable"),
        ("Max retries exceeded with url: /simple/uv/", "the package index is unreachable"),
        ("ERROR: No matching distribution found for x", ""),
    ],
)
def test_a_cause_is_read_from_messages(output: str, reason: str) -> None:
    assert installer.cause(output) == reason


def test_two_processes_install_one_after_the_other(scene: Scene) -> None:
    scene.wheel("alpha")
    other = scene.another()
    threads = [
        threading.Thread(target=each.install, args=(["base"],))
        for each in (scene.environment, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scene.complete("base")
    assert len(scene.installations()) == 1


def test_an_installer_that_outlives_its_process_keeps_the_lock(scene: Scene) -> None:
    folder = scene.folder
    folder.mkdir()
    os.mkfifo(folder / "end")
    code = (
        "from pathlib import Path\n"
        "from systola.installer import Environment\n"
        f"environment = Environment(Path({str(folder)!r}))\n"
        "with environment._locked():\n"
        "    environment._run(['sh', '-c', 'touch started; read line < end'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
        wait_for((folder / "started").exists)
        process.kill()
    with (folder / "set-up.lock").open("w") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "end").write_text("\n")
        fcntl.flock(file, fcntl.LOCK_EX)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for half a minute")


def test_torch_with_cuda_is_refused_where_the_cpu_build_cannot_be_had(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lock("llm", "# PyTorch, 1 MB\ntorch==2.13.0\n")
    scene.wheel("alpha")
    scene.environment.install(["base"])

    def planned(command: Sequence[str], cwd: Any = None) -> Any:
        assert "--dry-run" in command, "an installation was started"
        cpu = "--torch-backend=cpu" in command
        return subprocess.CompletedProcess(command, int(cpu), " + nvidia-cublas==13.1.1.3\n")

    monkeypatch.setattr(scene.environment, "_run", planned)
    with pytest.raises(InstallationError, match=r"^torch would install CUDA .*PIP_EXTRA_INDEX_URL"):
        scene.environment._install(environment.lock_named("llm"))


LISTED = """\
:env:.find-links='/nowhere https://example.org/wheels'
:env:.default-timeout='180'
global.cert='/etc/ca.crt'
global.extra-index-url='https://a.example/simple file:///nowhere/simple'
global.find-links='/other'
global.index-url='https://example.org/simple'
install.no-index='false'
list.format='columns'
"""


def test_settings_of_pip_become_options_of_uv() -> None:
    settings = uv_settings(LISTED)
    assert settings is not None
    assert sorted(zip(settings.options[::2], settings.options[1::2], strict=True)) == [
        ("--extra-index-url", "https://a.example/simple"),
        ("--find-links", "https://example.org/wheels"),
        ("--index-strategy", "unsafe-best-match"),
        ("--index-url", "https://example.org/simple"),
    ]
    assert settings.variables == {"UV_HTTP_TIMEOUT": "180", "SSL_CERT_FILE": "/etc/ca.crt"}


@pytest.mark.parametrize("setting", ("client-cert='/x'", "only-binary=':all:'", "target='/x'"))
def test_settings_without_an_equivalent_leave_the_work_to_pip(setting: str) -> None:
    assert uv_settings(f"global.{setting}\n") is None
