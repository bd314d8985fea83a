"""Installation of package groups into the checkout's ``.venv``, each when a verb first needs it.

A lock file in ``systola/requirements`` defines a group. ``.venv/groups`` contains a copy of the
lock of each complete group. If a group has no copy, or its lock has changed, the installer adds the
missing packages. It uses uv, which pip installs, or pip if uv is not available.
"""

import csv
import fcntl
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path

from systola.environment import DATA, USER_ENVIRONMENT, Lock, is_complete, lock_named, same_name
from systola.pip_settings import uv_settings

UV = "uv==0.13.9"
SPACE = 1.3
"""Free space that an installation needs, as a multiple of the installed size."""

CAUSES = {
    r"No space left on device|os error 28": "the disk is full",
    r"Temporary failure in name resolution|dns error|Failed to establish a new connection"
    r"|Connection refused|Network is unreachable|error sending request|Connection reset"
    r"|Read timed out|operation timed out|Max retries exceeded": "the package index is unreachable",
}
"""Reasons of a failure, by regular expressions for the output of pip and uv."""


class InstallationError(Exception):
    """An installation failed; the message is one sentence with the reason."""


class Environment:
    """A virtual environment and the groups in it.

    Parameters
    ----------
    folder : Path
        The environment; it is created with the first group.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.log = folder / "set-up.log"
        self.lock_file = folder / "set-up.lock"
        self.inherited: tuple[int, ...] = ()

    def install(self, names: Sequence[str], *, verify: bool = False) -> None:
        """Install the groups that are not complete.

        Parameters
        ----------
        names : Sequence[str]
            Names of groups.
        verify : bool
            Whether to also check the files of complete groups, and to reinstall packages that
            differ.

        Raises
        ------
        InstallationError
            If a group cannot be installed. Groups that are already complete remain complete.
        """
        locks = [lock_named(name) for name in names]
        try:
            self.folder.mkdir(exist_ok=True)
            with self._locked():
                # Another process may have installed them while this one waited for the lock.
                for lock in locks:
                    if verify or not is_complete(lock, self.folder):
                        self._complete(lock)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InstallationError(f"{self.folder} cannot be set up: {reason}") from error
        finally:
            for scratch in ("cache", "tmp"):
                shutil.rmtree(self.folder / scratch, ignore_errors=True)

    def absent(self, lock: Lock) -> list[str]:
        """Return the packages of a group that are missing, incomplete, or of another version.

        The metadata of an incomplete package is removed, so that the installer replaces it.
        """
        (site,) = self.folder.glob("lib/python*/site-packages")
        found = {same_name(one.name): one for one in distributions(path=[str(site)])}
        absent = []
        for name, version in lock.packages:
            one = found.get(same_name(name))
            # A local label, such as torch's +cpu, denotes a build of the same version.
            if one is None or one.version.partition("+")[0] != version:
                absent.append(name)
            elif not _has_all_files(one):
                absent.append(name)
                for metadata in site.glob("*.dist-info"):
                    if same_name(metadata.name.partition("-")[0]) == same_name(name):
                        shutil.rmtree(metadata)
        return absent

    def _complete(self, lock: Lock) -> None:
        """Install a group's missing packages, then write its stamp."""
        if not self.python.exists():
            self._create()
        self._stamp(lock).unlink(missing_ok=True)
        if absent := self.absent(lock):
            started = time.monotonic()
            what = f"{lock.title}, {lock.megabytes} MB"
            if len(absent) < len(lock.packages) / 2:
                what = ", ".join(absent)
            _print(f"installing {lock.name}: {what}", end=" ")
            try:
                self._require_space(lock)
                self._install(lock)
                if absent := self.absent(lock):
                    raise InstallationError(f"{', '.join(absent)} cannot be installed completely")
            except BaseException:
                _print("")
                raise
            _print(f"({time.monotonic() - started:.1f} s)")
        self._stamp(lock).parent.mkdir(exist_ok=True)
        self._stamp(lock).write_text(lock.text)

    def _create(self) -> None:
        """Create the environment without pip, which runs from its wheel."""
        # Without its interpreter, an environment contains packages of another Python: remove them.
        for name in ("bin", "include", "lib", "lib64", "groups"):
            former = self.folder / name
            if former.is_symlink():
                former.unlink()
            elif former.exists():
                shutil.rmtree(former)
        made = self._run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
        if made.returncode:
            raise self._failure("python -m venv failed", made.stdout)

    def _install(self, lock: Lock) -> None:
        """Install the packages of a group."""
        options = ["--requirement", str(lock.file)]
        if lock.name == DATA:
            options += ["--no-deps"]
        elif lock.name != "base":
            options += ["--constraint", str(lock_named("base").file)]
        command = self._uv or self._pip("install", "--no-compile", "--no-cache-dir", "--retries=2")
        if any(name == "torch" for name, _ in lock.packages):
            options += self._cpu_build([*command, *options])
        done = self._run([*command, *options])
        if done.returncode:
            raise self._failure(f"{lock.name} cannot be installed", done.stdout)

    def _cpu_build(self, command: Sequence[str]) -> list[str]:
        """Return the options that select torch's CPU build if the index would install CUDA's."""
        if not re.search(r"\bnvidia-", self._run([*command, "--dry-run"]).stdout):
            return []
        option = "--torch-backend=cpu"
        if self._uv and not self._run([*command, option, "--dry-run"]).returncode:
            return [option]
        raise InstallationError(
            "torch would install CUDA libraries of several gigabytes: set PIP_EXTRA_INDEX_URL to "
            "PyTorch's index of CPU builds, see README.md"
        )

    @cached_property
    def _uv(self) -> list[str]:
        """The command of uv with pip's indexes; empty if uv cannot replace pip."""
        listed = self._run(self._pip("config", "list"))
        settings = uv_settings(listed.stdout)
        if listed.returncode or settings is None:
            return []
        program = self.folder / "bin" / "uv"
        if not program.exists():
            options = ["--no-compile", "--no-cache-dir", "--no-deps", "--retries=2", UV]
            fetched = self._run(self._pip("install", *options))
            if fetched.returncode and cause(fetched.stdout):
                raise self._failure("uv cannot be installed", fetched.stdout)
            if fetched.returncode:
                return []
        variables = [f"{name}={value}" for name, value in settings.variables.items()]
        # If the cache is on the same file system, uv links packages instead of copying them.
        own = ["--python", str(self.python), "--cache-dir", str(self.folder / "cache")]
        return ["env", *variables, str(program), "pip", "install", *own, *settings.options]

    def _pip(self, *arguments: str) -> list[str]:
        """Return a pip command: the environment's own pip, or pip from a wheel."""
        if importlib.util.find_spec("pip") and list(self.folder.glob("lib/*/site-packages/pip")):
            return [str(self.python), "-m", "pip", *arguments]
        folders = [Path("/usr/share/python-wheels"), self.folder / "wheels"]
        if configured := sysconfig.get_config_var("WHEEL_PKG_DIR"):
            folders.insert(0, Path(configured))
        if (spec := importlib.util.find_spec("ensurepip")) and spec.origin:
            folders.insert(0, Path(spec.origin).parent / "_bundled")
        wheels = [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]
        if not wheels:
            wheels = self._fetch_pip()
        return [str(self.python), str(wheels[0] / "pip"), *arguments]

    def _fetch_pip(self) -> list[Path]:
        """Fetch Debian's wheel of pip, without root permissions."""
        scratch, folder = self.folder / "tmp", self.folder / "wheels"
        scratch.mkdir(exist_ok=True)
        if shutil.which("apt-get") and shutil.which("dpkg-deb"):
            self._run(["apt-get", "download", "-qq", "python3-pip-whl"], cwd=scratch)
            for package in scratch.glob("*.deb"):
                self._run(["dpkg-deb", "-x", str(package), str(scratch)])
        for wheel in scratch.glob("usr/share/python-wheels/pip-*.whl"):
            folder.mkdir(exist_ok=True)
            shutil.copy(wheel, folder)
        if not (wheels := list(folder.glob("pip-*.whl"))):
            raise InstallationError(
                "python has no pip: Debian: apt install python3-venv, or choose PYTHON="
            )
        return wheels

    def _require_space(self, lock: Lock) -> None:
        """Check that the disk has space for the installation."""
        free = shutil.disk_usage(self.folder).free / 1e6
        needed = SPACE * lock.megabytes
        if free < needed:
            raise InstallationError(
                f"{lock.name} needs {needed:,.0f} MB in {self.folder}: {free:,.0f} MB are free"
            )

    def _run(self, command: Sequence[str], cwd: Path | None = None) -> "_Finished":
        """Run a command with the user's own settings, and append its output to the log."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = USER_ENVIRONMENT | {"TMPDIR": str(temporary), "PIP_USER": "0"}
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX"):
            variables.pop(name, None)
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            # An installer that outlives this process keeps the lock.
            pass_fds=self.inherited,
        )
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}")
        return done

    def _failure(self, what: str, output: str) -> InstallationError:
        """Return an error with the cause of a failure."""
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        reason = cause(output) or (lines[-1].removeprefix("ERROR: ") if lines else "no message")
        return InstallationError(f"{what}: {reason}; {self.log} contains all messages")

    def _stamp(self, lock: Lock) -> Path:
        return self.folder / "groups" / lock.name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the environment, so that one process at a time changes it."""
        with self.lock_file.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _print(f"waiting for another process that sets up {self.folder.name}")
                fcntl.flock(file, fcntl.LOCK_EX)
            self.inherited = (file.fileno(),)
            self.log.write_text("")
            yield
            self.inherited = ()


_Finished = subprocess.CompletedProcess[str]


def _has_all_files(package: Distribution) -> bool:
    """Report whether the files of a package have their recorded sizes."""
    # Read the record directly: a backport of importlib.metadata lists only files that exist.
    record = package.read_text("RECORD")
    if not record or package.read_text("INSTALLER") is None:
        return False
    for file, _hash, recorded in csv.reader(record.splitlines()):
        try:
            size = Path(str(package.locate_file(file))).stat().st_size
        except OSError:
            # Compiled files are optional.
            if file.endswith(".pyc"):
                continue
            return False
        if recorded and int(recorded) != size:
            return False
    return True


def cause(output: str) -> str:
    """Return the reason of a failure; an empty string if it is unknown."""
    return next((words for pattern, words in CAUSES.items() if re.search(pattern, output)), "")


def _print(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
