"""The folders that verbs write: a manifest lists what is theirs, and all else stays as it is.

A folder is written if it does not exist, is empty, or carries the manifest, and what the manifest
lists is replaced. A listed file that somebody changed is not: it is named, and nothing is written.
"""

import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import BUILD, ROOT, replace_bytes

MANIFEST = "systola.sha256"
"""Name of the list; `sha256sum -c` reads it."""

_TITLE = "# Written by Systola, which replaces these files and no others."


def require_replaceable(directory: Path) -> None:
    """Raise a worded error unless a folder may be written.

    Raises
    ------
    UserError
        If the folder is or holds the checkout or the working directory, is a file, holds files
        and no manifest, or holds a listed file that was changed.
    """
    with _worded(directory):
        place = directory.resolve()
        for kept, name in ((ROOT, "the checkout"), (Path.cwd(), "the working directory")):
            if kept.is_relative_to(place):
                raise UserError(f"OUT must be a folder of its own, not {name} or above it: {place}")
        if os.path.lexists(place) and not place.is_dir():
            raise UserError(f"OUT must be a folder, not the file {place}")
        if place.is_dir() and not (place / MANIFEST).exists() and any(place.iterdir()):
            raise UserError(
                "OUT must be a new folder, an empty one, or one that a verb wrote; "
                f"{place} has files and no {MANIFEST}"
            )
        for name, digests in _read_manifest(place).items():
            file = place / name
            if os.path.lexists(file) and _digest(file) not in digests:
                raise UserError(
                    f"{file} was changed since a verb wrote it, and would be replaced: "
                    "move it away, or name another OUT"
                )


@contextmanager
def output_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder; at its end, what is in it replaces what was written to `directory`.

    Every file appears whole, and a file whose content did not change keeps its time stamp. What is
    interrupted leaves a folder that the next call completes. A folder below the build directory
    that has no manifest yet is given one.

    Raises
    ------
    UserError
        If `directory` may not be written (see `require_replaceable`), cannot be written, or holds
        somebody else's file under a name to be written.
    """
    # While another process replaces files, its list is ahead of them or behind.
    with _worded(directory), _held(directory) if directory.is_dir() else nullcontext():
        _require_known(directory)
    with tempfile.TemporaryDirectory(prefix="output-") as scratch:
        yield Path(scratch)
        with _worded(directory):
            directory.mkdir(parents=True, exist_ok=True)
            with _held(directory):
                _require_known(directory)
                _replace(directory, Path(scratch))


def _require_known(directory: Path) -> None:
    """Apply `require_replaceable`, but where only verbs write and wrote before manifests."""
    if not _is_unlisted(directory):
        require_replaceable(directory)


def _is_unlisted(directory: Path) -> bool:
    """Whether a folder is below the build directory and has no manifest."""
    return BUILD in directory.resolve().parents and not (directory / MANIFEST).exists()


def _replace(directory: Path, new: Path) -> None:
    """Put the files of `new` in the place of those that the manifest lists."""
    files = sorted(path for path in new.rglob("*") if path.is_file())
    contents = {path.relative_to(new).as_posix(): path.read_bytes() for path in files}
    digests = {name: {hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    listed = _read_manifest(directory)
    for name in contents.keys() - listed.keys():
        if os.path.lexists(directory / name) and not _is_unlisted(directory):
            raise UserError(
                f"{directory / name} was not written by a verb, and would be replaced: "
                "move it away, or name another OUT"
            )
    # Until all is done both are listed, so that whatever an interruption leaves is known as ours.
    both = {name: listed.get(name, set()) | digests.get(name, set()) for name in listed | digests}
    if listed != digests:
        replace_bytes(directory / MANIFEST, _manifest(both))
    for name, data in contents.items():
        file = directory / name
        if not file.is_file() or file.read_bytes() != data:
            replace_bytes(file, data)
    for name in listed.keys() - contents.keys():
        file = directory / name
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()
    if both != digests:
        replace_bytes(directory / MANIFEST, _manifest(digests))


def _manifest(digests: Mapping[str, set[str]]) -> bytes:
    """Write the list: a digest and a path a line, in the order of the paths."""
    lines = [f"{digest}  {name}" for name in sorted(digests) for digest in sorted(digests[name])]
    return "".join(f"{line}\n" for line in (_TITLE, *lines)).encode()


def _read_manifest(directory: Path) -> dict[str, set[str]]:
    """Return the digests that each listed file may have; nothing without a manifest."""
    file = directory / MANIFEST
    if not file.exists():
        return {}
    title, *lines = file.read_text(errors="replace").splitlines() or [""]
    listed: dict[str, set[str]] = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})  ([^/\0]+(?:/[^/\0]+)*)", line)
        if not match or {".", ".."} & set(match[2].split("/")):
            raise UserError(f"OUT must hold what a verb wrote; {file} is not a verb's: {line!r}")
        listed.setdefault(match[2], set()).add(match[1])
    if title != _TITLE:
        raise UserError(f"OUT must hold what a verb wrote; {file} is not a verb's: {title!r}")
    return listed


def _digest(file: Path) -> str:
    """Return a plain file's digest; nothing for all else."""
    if file.is_symlink() or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Let one process at a time write a folder."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _worded(directory: Path) -> Iterator[None]:
    """Say in one sentence what the system refuses."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        raise UserError(f"OUT cannot be written: {error.strerror}: {where}") from error
