"""A job: one verb, applied to a unit with given parameters; its result is the verb's JSON."""

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
"""Folder in the build directory for the jobs' own build directories, each removed after its job."""

SHARED = ("llm", "simulators", "debian", "liberty")
"""Folders of the build directory that all jobs share: caches with locks."""

RESULTS = {"synth": "synth.json", "sim": "sim.json", "fpga": "fpga.json"}
LOG_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, with everything that its result depends on.

    Parameters
    ----------
    top, point : str
        The unit, and the name of its parameters.
    parameters : str
        The parameters as the text of the TOML file that a verb reads.
    verb : str
        ``synth``, ``sim`` or ``fpga``.
    sources : str
        `Checkout.sources` for which the result is valid; for a unit of a package also its digest.
    seed : int, optional
        Seed of a simulation.
    liberty, liberty_digest : str
        Paths of a cell library's files, separated by colons, and the digest of their bytes; empty
        for the default.
    packages : str
        `Checkout.packages` for which the result is valid.
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
        """Digest of everything that the result depends on: sixteen hexadecimal digits."""
        inputs = {name: value for name, value in asdict(self).items() if name != "liberty"}
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """Description of the job for messages: verb, point and seed."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.verb} {self.point}{seed}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a job.

    Parameters
    ----------
    key : str
        `Job.key` of the job.
    failure : str
        Reason of a failure; empty for a job that succeeded.
    seconds : float
        Duration.
    worker : str
        Name of the machine.
    values : dict[str, Any]
        Contents of the verb's JSON; empty for a job that failed.
    log : str
        Last lines of the verb's output for a job that failed.
    """

    key: str
    failure: str
    seconds: float
    worker: str
    values: dict[str, Any]
    log: str = ""


def liberty_digest(paths: str) -> str:
    """Return twelve hexadecimal digits of the digest of liberty files, or "missing"."""
    files = liberty_paths(paths)
    if not all(file.is_file() for file in files):
        return "missing"
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def run_job(job: Job) -> Result:
    """Run a verb in a separate process and build directory, and read its JSON."""
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
        failure="" if values else (lines or ["the verb wrote no result"])[-1].strip(),
        seconds=round(time.monotonic() - started, 2),
        worker=platform.node(),
        values=values,
        log="" if values else "\n".join(lines[-LOG_LINES:]),
    )


def _run_verb(job: Job, home: Path) -> tuple[dict[str, Any], str]:
    """Return the contents of the verb's JSON, empty after a failure, and the verb's output."""
    if job.liberty and (found := liberty_digest(job.liberty)) != job.liberty_digest:
        return {}, f"LIBERTY must be equal on all machines: digest of {job.liberty} here: {found}"
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
