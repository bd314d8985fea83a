"""Where things are: the checkout, and the directory that everything built goes into."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, or the folder that an installation put the packages into."""

IN_CHECKOUT = (ROOT / "pyproject.toml").is_file()
"""Whether the packages are a checkout's; the tests and the documentation are only there."""

BUILD_VARIABLE = "SYSTOLA_BUILD"

BUILD = Path(
    os.environ.get(BUILD_VARIABLE, (ROOT if IN_CHECKOUT else Path.cwd()) / "build")
).resolve()
"""The only directory that a verb writes to, beside what the user names."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, so that two processes do not build or capture the same at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace_text(file: Path, text: str) -> None:
    """Write a file under another name and rename it: nobody sees half of it."""
    replace_bytes(file, text.encode())


def replace_bytes(file: Path, data: bytes) -> None:
    """Write a file as `replace_text` does; what is interrupted leaves nothing behind."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.rename(file)
    finally:
        new.unlink(missing_ok=True)
