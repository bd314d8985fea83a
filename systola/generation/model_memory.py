"""What a model becomes, in a file: written once, checksummed, written again when damaged."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.paths import locked, replace_text

Piece = tuple[int, NDArray[np.uint8]]
"""Where in the file lines stand, in octets, and what they are."""


def model_memory(
    file: Path,
    description: dict[str, Any],
    pieces: Callable[[], Iterable[Piece]],
    report: Callable[[str], None],
) -> None:
    """Make sure that a file holds a model's lines.

    What is between the pieces is a hole, which takes no space.

    Parameters
    ----------
    file : Path
        The file. Beside it stands a manifest with the description, the pieces' places and their
        SHA-256.
    description : dict[str, Any]
        What the lines depend on.
    pieces : Callable[[], Iterable[Piece]]
        Computes them.
    report : Callable[[str], None]
        Is told what goes on.
    """
    manifest = file.with_suffix(".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        if file.exists() and manifest.exists():
            report(f"checking {file.name}")
            if _intact(file, manifest, description):
                return
            report(f"{file.name} is damaged or of another model, and is written again")
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
        noted = {"of": description, "pieces": places, "sha256": digest.hexdigest()}
        replace_text(manifest, json.dumps(noted, indent=1) + "\n")


def model_arrays(
    file: Path,
    description: dict[str, Any],
    arrays: Callable[[], dict[str, NDArray[Any]]],
    report: Callable[[str], None],
) -> dict[str, NDArray[Any]]:
    """Return a model's arrays by their names, from a file that `model_memory` keeps.

    Parameters
    ----------
    arrays : Callable[[], dict[str, numpy.ndarray]]
        Computes them, if they are not there.
    """

    def pieces() -> Iterable[Piece]:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays())
        yield 0, np.frombuffer(content.getvalue(), np.uint8)

    model_memory(file, description, pieces, report)
    with np.load(file, allow_pickle=False) as kept:
        return dict(kept)


def _intact(file: Path, manifest: Path, description: dict[str, Any]) -> bool:
    """Return whether every octet of the pieces is the one that was written."""
    try:
        noted = json.loads(manifest.read_text())
        if noted["of"] != description:
            return False
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            for place, octets in noted["pieces"]:
                stream.seek(place)
                digest.update(stream.read(octets))
        return digest.hexdigest() == noted["sha256"]
    except (ValueError, KeyError, TypeError):
        return False
