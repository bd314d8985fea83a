"""Paths of the checkout and the build directory, file locks, and atomic replacement of files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdl.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, or the folder that contains the installed packages."""

IN_CHECKOUT = (ROOT / "pyproject.toml").is_file()
"""Whether the packages are in a checkout, which alone contains tests and documentation."""

BUILD_VARIABLE = "SYSTOLA_BUILD"


def expanded(path: Path | str, name: str) -> Path:
    """Expand `~` in a path that the user specifies.

    Parameters
    ----------
    path : Path or str
        The path.
    name : str
        Name of the variable that contains the path, for the message.

    Raises
    ------
    UserError
        If `~` names a user who does not exist.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"{name} must name a user that exists, not '{path}'") from error


BUILD = expanded(
    os.environ.get(BUILD_VARIABLE) or (ROOT if IN_CHECKOUT else Path.cwd()) / "build",
    BUILD_VARIABLE,
).resolve()
"""The only directory that a verb writes to, except for those that the user specifies."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, so that no two processes build or capture the same data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace_text(file: Path, text: str) -> None:
    """Write a file under a temporary name and rename it, so that no reader sees a partial file."""
    replace_bytes(file, text.encode())


def replace_bytes(file: Path, data: bytes) -> None:
    """Replace a file's bytes as `replace_text` does; an interruption preserves the old file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.rename(file)
    finally:
        new.unlink(missing_ok=True)
