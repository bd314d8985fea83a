"""One job: a unit at parameters through one verb; its result is the verb's JSON."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.paths import BUILD, BUILD_VARIABLE, replace_text
from synth.liberty_files import liberty_paths

WORK = "explore/work"
"""Where jobs build, in the build directory; what ended well is removed."""

SHARED = ("llm", "simulators", "debian", "liberty")
"""Folders of the build directory that every job may use: caches behind locks."""

RESULTS = {"synth": "synth.json", "sim": "sim.json", "fpga": "fpga.json"}
LOG_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is run, and what its result depends on.

    Parameters
    ----------
    top, point : str
        The unit, and its parameters' name.
    parameters : str
        The parameters as the TOML file that a verb takes.
    verb : str
        ``synth``, ``sim`` or ``fpga``.
    sources : str
        `Checkout.sources` that it is for.
    seed : int, optional
        Of a simulation.
    liberty, liberty_digest : str
        Paths of a cell library's files, separated by colons, and the digest of their bytes; empty
        for the default.
    packages : str
        `Checkout.packages` that it is for.
    """

    top: str
    point: str
    parameters: str
    verb: str
    sources: str
    seed: int | None = None
    liberty: str = ""
    liberty_digest: str = ""
    packages: str = ""

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that stand for all that the result depends on."""
        told = {name: value for name, value in asdict(self).items() if name != "liberty"}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """What a reader calls it."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.verb} {self.point}{seed}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a job.

    Parameters
    ----------
    key : str
        The job's.
    failure : str
        Why there are no values; empty if there are.
    seconds : float
        How long it ran.
    worker : str
        The machine.
    values : dict[str, Any]
        What the verb's JSON says.
    log : str
        The end of what the verb printed, if it failed.
    """

    key: str
    failure: str
    seconds: float
    worker: str
    values: dict[str, Any]
    log: str = ""


def liberty_digest(paths: str) -> str:
    """Return twelve hexadecimal digits of the bytes of liberty files, or "not there"."""
    files = liberty_paths(paths)
    if not all(file.is_file() for file in files):
        return "not there"
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def run_job(job: Job) -> Result:
    """Run a verb in a process of its own, in a build directory of its own, and read its JSON."""
    started = time.monotonic()
    home = BUILD / WORK / f"{job.key}-{os.getpid()}"
    try:
        values, log = _run_verb(job, home)
    except OSError as error:
        values, log = {}, f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(home, ignore_errors=True)
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return Result(
        key=job.key,
        failure="" if values else (lines or ["the verb left no result"])[-1].strip(),
        seconds=round(time.monotonic() - started, 2),
        worker=platform.node(),
        values=values,
        log="" if values else "\n".join(lines[-LOG_LINES:]),
    )


def _run_verb(job: Job, home: Path) -> tuple[dict[str, Any], str]:
    """Return what the verb's JSON says, nothing if it failed, and what it printed."""
    if job.liberty and (found := liberty_digest(job.liberty)) != job.liberty_digest:
        return {}, f"LIBERTY must be the same file everywhere: {job.liberty} is {found} here"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for name in SHARED:
        (BUILD / name).mkdir(exist_ok=True)
        (home / name).symlink_to(BUILD / name)
    replace_text(home / "parameters.toml", job.parameters)
    options = ["--top", job.top, "--parameters", str(home / "parameters.toml")]
    if job.seed is not None:
        options += ["--seed", str(job.seed)]
    if job.liberty:
        options += ["--liberty", job.liberty]
    verb = subprocess.run(
        [sys.executable, "-m", "systola.exploration.supervised", job.verb, *options],
        env=os.environ | {BUILD_VARIABLE: str(home), "SYSTOLA_PARENT": str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    found = list(home.glob(f"{job.top}/*/{RESULTS[job.verb]}"))
    if verb.returncode or len(found) != 1:
        return {}, f"{verb.stdout}\nstatus {verb.returncode}" if not verb.stdout else verb.stdout
    return json.loads(found[0].read_text()), verb.stdout
