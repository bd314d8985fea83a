"""Files that are computed from a model: written once, checksummed, and written again if stale."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.paths import locked, replace_text

Piece = tuple[int, NDArray[np.uint8]]
"""Offset in the file, in bytes, and content."""


@dataclass(frozen=True)
class ModelFile:
    """A file that is computed from a model.

    Parameters
    ----------
    file : Path
        The file. A manifest next to it holds the key, the places of the pieces and their SHA-256.
    key : dict[str, Any]
        All that decides the content, as JSON.
    """

    file: Path
    key: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the key."""
        return hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()


def model_memory(
    kept: ModelFile, pieces: Callable[[], Iterable[Piece]], report: Callable[[str], None]
) -> Path:
    """Return a file that holds a model's memory image; write it if it is absent or stale.

    The space between the pieces is a hole in a sparse file.

    Parameters
    ----------
    kept : ModelFile
        Place and key.
    pieces : Callable[[], Iterable[Piece]]
        Computes the content.
    report : Callable[[str], None]
        Receives a message at each step.
    """
    file, manifest = kept.file, kept.file.with_suffix(".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    # The manifest holds JSON: a tuple in the key reads back as a list.
    key = json.loads(json.dumps(kept.key))
    with locked(file.with_suffix(".lock")):
        if file.exists() and manifest.exists():
            report(f"checking {file.name}")
            problem = _problem(file, manifest, key)
            if not problem:
                return file
            report(f"{file.name} {problem}, and is written again")
        else:
            report(f"writing {file.name}")
        new = file.with_suffix(".new")
        places, digest = [], hashlib.sha256()
        try:
            with new.open("wb") as out:
                for place, lines in pieces():
                    out.seek(place)
                    out.write(np.ascontiguousarray(lines).data)
                    digest.update(np.ascontiguousarray(lines).data)
                    places.append([place, lines.nbytes])
                out.flush()
                os.fsync(out.fileno())
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
        noted = {"of": key, "pieces": places, "sha256": digest.hexdigest()}
        replace_text(manifest, json.dumps(noted, indent=1) + "\n")
    return file


def model_arrays(
    kept: ModelFile,
    arrays: Callable[[], dict[str, NDArray[Any]]],
    report: Callable[[str], None],
) -> dict[str, NDArray[Any]]:
    """Return a model's arrays by name, from a file of `model_memory`.

    Parameters
    ----------
    arrays : Callable[[], dict[str, numpy.ndarray]]
        Computes them, if the file is absent or stale.
    """

    def pieces() -> Iterable[Piece]:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays())
        yield 0, np.frombuffer(content.getvalue(), np.uint8)

    with np.load(model_memory(kept, pieces, report), allow_pickle=False) as stored:
        return dict(stored)


def _problem(file: Path, manifest: Path, key: dict[str, Any]) -> str:
    """Return why a file cannot be used, or nothing if key and every byte are as expected."""
    try:
        noted = json.loads(manifest.read_text())
        of = noted["of"]
        if of != key:
            changed = [name for name in key if of.get(name) != key[name]]
            return f"has another {' and '.join(changed) or 'key'}"
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            for place, size in noted["pieces"]:
                stream.seek(place)
                digest.update(stream.read(size))
        return "" if digest.hexdigest() == noted["sha256"] else "is corrupted"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "is corrupted"
