"""Generation of the lock files from the installed packages: ``python -m systola.locks``.

To change a version, install it into ``.venv``, run this command, and run the tests.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from tomllib import loads

from packaging.requirements import Requirement

from hdl.paths import ROOT, replace_text
from systola.environment import DATA, GROUPS, lock_named, same_name

LABELS = {"+cpu"}
"""Build labels that a lock omits, because a machine may have another build of the version."""


def direct_requirements(group: str) -> list[Requirement]:
    """Return a group's requirements from pyproject.toml."""
    project = loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"]
    if group != "base":
        lines = project["optional-dependencies"][group]
    return [Requirement(line) for line in lines]


def locked(group: str) -> dict[str, str]:
    """Return the packages that a group adds to the base, with their installed versions.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If one of them is not installed.
    """
    if group == DATA:
        return {name: distribution(name).version for name, _ in lock_named(DATA).packages}
    names = closure(direct_requirements(group))
    if group != "base":
        names -= closure(direct_requirements("base"))
    return {name: distribution(name).version.partition("+")[0] for name in sorted(names)}


def closure(requirements: Iterable[Requirement]) -> set[str]:
    """Return the names of packages and of all packages that they require."""
    found: set[tuple[str, str]] = set()
    todo = list(requirements)
    while todo:
        requirement = todo.pop()
        for extra in ("", *requirement.extras):
            key = (same_name(requirement.name), extra)
            if key in found:
                continue
            found.add(key)
            for line in distribution(requirement.name).requires or []:
                inner = Requirement(line)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    todo.append(inner)
    return {name for name, _ in found}


def megabytes(names: Iterable[str]) -> int:
    """Return the installed size of packages, without compiled files, rounded up to 10 MB."""
    size = 0
    for name in names:
        for file in distribution(name).files or []:
            path = Path(str(file.locate()))
            if path.suffix != ".pyc" and path.is_file():
                size += path.stat().st_size
    return -(-size // 10_000_000) * 10


def lock_text(group: str) -> str:
    """Return the text of a group's lock file."""
    packages = locked(group)
    head = f"# {lock_named(group).title}, {megabytes(packages)} MB"
    direct = [] if group == DATA else direct_requirements(group)
    markers = {same_name(one.name): f"; {one.marker}" for one in direct if one.marker}
    lines = (f"{name}=={version}{markers.get(name, '')}" for name, version in packages.items())
    return "\n".join([head, *lines, ""])


def main() -> None:
    """Write all lock files."""
    for group in GROUPS:
        replace_text(lock_named(group).file, lock_text(group))
        print(f"wrote {lock_named(group).file.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
