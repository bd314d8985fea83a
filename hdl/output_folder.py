"""Output folders of verbs: a manifest lists the generated files; all other files are preserved.

A verb writes a folder that does not exist, is empty, or contains a manifest, and replaces the
files that the manifest lists. If a listed file was changed since, the verb rejects the folder with
the file's name and writes nothing.
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
"""File name of the manifest, in the format of `sha256sum -c`."""

_TITLE = "# Written by Systola, which replaces these files and no others."


def require_replaceable(directory: Path) -> None:
    """Check that a verb may write a folder.

    Raises
    ------
    UserError
        If the folder is or contains the checkout or the working directory, is a file, contains
        files and no manifest, or contains a listed file that was changed.
    """
    with _as_user_error(directory):
        place = directory.resolve()
        for kept, name in ((ROOT, "the checkout"), (Path.cwd(), "the working directory")):
            if kept.is_relative_to(place):
                raise UserError(f"OUT must be a separate folder, not {name} or above it: {place}")
        if os.path.lexists(place) and not place.is_dir():
            raise UserError(f"OUT must be a folder, not the file {place}")
        if place.is_dir() and not (place / MANIFEST).exists() and any(place.iterdir()):
            raise UserError(
                "OUT must be a new folder, an empty one, or one that a verb wrote; "
                f"{place} contains files and no {MANIFEST}"
            )
        for name, digests in _read_manifest(place).items():
            file = place / name
            if os.path.lexists(file) and _digest(file) not in digests:
                raise UserError(
                    f"{file} was changed since a verb wrote it and would be overwritten: "
                    "move the file or choose another OUT"
                )


@contextmanager
def output_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder; on exit, its files replace the generated files in `directory`.

    Each file is replaced atomically, and a file whose content does not change keeps its time stamp.
    After an interruption, the next call completes the folder. A folder below the build directory
    that has no manifest yet gets one.

    Raises
    ------
    UserError
        If `directory` may not be written (see `require_replaceable`), cannot be written, or
        contains a file that is not listed under a name to be written.
    """
    # While another process replaces files, its manifest and its files disagree: take the lock.
    with _as_user_error(directory), _locked(directory) if directory.is_dir() else nullcontext():
        _require_known(directory)
    with tempfile.TemporaryDirectory(prefix="output-") as scratch:
        yield Path(scratch)
        with _as_user_error(directory):
            directory.mkdir(parents=True, exist_ok=True)
            with _locked(directory):
                _require_known(directory)
                _replace(directory, Path(scratch))


def _require_known(directory: Path) -> None:
    """Apply `require_replaceable`, except to folders without a manifest below `BUILD`.

    Only verbs write there, and earlier versions wrote no manifest.
    """
    if not _is_unlisted(directory):
        require_replaceable(directory)


def _is_unlisted(directory: Path) -> bool:
    """Whether a folder is below the build directory and has no manifest."""
    return BUILD in directory.resolve().parents and not (directory / MANIFEST).exists()


def _replace(directory: Path, new: Path) -> None:
    """Replace the files that the manifest lists by the files of `new`."""
    files = sorted(path for path in new.rglob("*") if path.is_file())
    contents = {path.relative_to(new).as_posix(): path.read_bytes() for path in files}
    digests = {name: {hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    listed = _read_manifest(directory)
    for name in contents.keys() - listed.keys():
        if os.path.lexists(directory / name) and not _is_unlisted(directory):
            raise UserError(
                f"{directory / name} was not written by a verb and would be overwritten: "
                "move the file or choose another OUT"
            )
    # The manifest lists old and new digests until all files are replaced. After an interruption,
    # every generated file is then recognised.
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
    """Return the manifest: one digest and path per line, sorted by path."""
    lines = [f"{digest}  {name}" for name in sorted(digests) for digest in sorted(digests[name])]
    return "".join(f"{line}\n" for line in (_TITLE, *lines)).encode()


def _read_manifest(directory: Path) -> dict[str, set[str]]:
    """Return the digests that each listed file may have; an empty mapping without a manifest."""
    file = directory / MANIFEST
    if not file.exists():
        return {}
    title, *lines = file.read_text(errors="replace").splitlines() or [""]
    listed: dict[str, set[str]] = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})  ([^/\0]+(?:/[^/\0]+)*)", line)
        if not match or {".", ".."} & set(match[2].split("/")):
            raise UserError(f"each line of {file} must be a digest and a path, not {line!r}")
        listed.setdefault(match[2], set()).add(match[1])
    if title != _TITLE:
        raise UserError(f"the first line of {file} must be {_TITLE!r}, not {title!r}")
    return listed


def _digest(file: Path) -> str:
    """Return the digest of a regular file; an empty string for any other path."""
    if file.is_symlink() or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _as_user_error(directory: Path) -> Iterator[None]:
    """Convert an error of the operating system to a `UserError` with one sentence."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        raise UserError(f"OUT cannot be written: {error.strerror}: {where}") from error
