"""Comparison of the sources and packages of two machines, before jobs run on both."""

import hashlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from hdl.paths import IN_CHECKOUT, ROOT
from systola.environment import locked_packages

TREES = ("hdl", "golden", "testbenches", "synth", "systola", "constraints")
"""Folders that a result can depend on; tests and documentation do not affect results."""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The sources and packages of a process.

    Parameters
    ----------
    sources : str
        Digest of the files of `TREES`.
    packages : str
        Digest of the installed versions of the locked packages.
    commit : str
        Git's short name of the commit; empty if there is none.
    """

    sources: str
    packages: str
    commit: str

    def difference(self, other: "Checkout") -> str:
        """Describe how another checkout differs; return an empty string if it does not."""
        differences = []
        if other.sources != self.sources:
            commits = f" at {other.commit or 'no commit'}, not {self.commit or 'no commit'}"
            differences.append(f"sources {other.sources}{commits}; local sources: {self.sources}")
        if other.packages != self.packages:
            differences.append("other versions of packages; `make doctor` lists them")
        return " and ".join(differences)


@cache
def this_checkout() -> Checkout:
    """Read the checkout or the installation that this process runs, once per process."""
    packages = hashlib.sha256()
    for name, _wanted in locked_packages():
        try:
            found = version(name).split("+")[0]
        except PackageNotFoundError:
            found = "none"
        packages.update(f"{name}=={found}\n".encode())
    return Checkout(
        sources=files_digest(TREES)[:12],
        packages=packages.hexdigest()[:12],
        commit=git("describe", "--always", "--dirty"),
    )


def files_digest(places: Iterable[str]) -> str:
    """Return the SHA-256 of the names and contents of files, and of all files in folders."""
    digest = hashlib.sha256()
    for place in places:
        for file in sorted([ROOT / place, *(ROOT / place).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def git(*arguments: str) -> str:
    """Return what git prints about the checkout; nothing without git or without a checkout."""
    if not IN_CHECKOUT:
        return ""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip()
    except OSError:
        return ""
